#include "tools/shoal/picture_options.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "shm/model/presets.hpp"
#include "tools/shoal/commands.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kClassifyAbout =
    "Shows the classes of pictures, with a model of the running daemon (NAME) or of a checkpoint in this process (PATH).";
constexpr const char* kClassifyMore =
    R"(MODEL is a PATH if it contains a '/' or exists as a directory or checkpoint; otherwise it is a NAME. Pictures are prepared as
[preprocess] in model.toml or a preset says:
  imagenet            RGB, shorter side 256, crop 224, mean and deviation of ImageNet (Gluon, torchvision)
  imagenet-bgr-caffe  BGR, shorter side 256, crop 224, minus 104, 117, 123 (Caffe, early MXNet)
  cifar10             RGB, 32, mean and deviation of CIFAR-10
  mnist               gray, 28, 0..1
  none                RGB, the model's size, 0..255

  shoal classify resnet dog.jpg cat.jpg --top-k 3
  shoal classify models/squeezenet11 *.jpg --preset imagenet-bgr-caffe --contexts 4
  shoal classify resnet dog.jpg --json      {"pictures": [{"file", "classes": [{"index", "label", "probability"}]}]})";

constexpr const char* kDetectAbout =
    "Shows the objects in pictures and where they are, with a model of the running daemon (NAME) or of a checkpoint in this "
    "process (PATH).";
constexpr const char* kDetectMore =
    R"(MODEL is a PATH if it contains a '/' or exists as a directory or checkpoint; otherwise it is a NAME. Boxes are x0, y0, x1, y1 in
pixels of the picture. --draw writes each picture when it is answered; the drawings stay if a later picture fails.
Detectors are models with the outputs of MultiBoxDetection (SSD), box_nms, or GluonCV (SSD, YOLO, Faster R-CNN).
Pictures are prepared as [preprocess] in model.toml or a preset says:
  gluoncv-detector    RGB, the whole picture in the model's size, mean and deviation of ImageNet
  mxnet-ssd           RGB, the whole picture in the model's size, minus 123, 117, 104
  darknet             RGB, the whole picture in a letterbox, 0..1

  shoal detect ssd street.jpg --threshold 0.3
  shoal detect models/ssd street.jpg --draw boxes.png --labels voc.txt
  shoal detect ssd *.jpg --draw out/        a PNG of each picture's name in that directory
  shoal detect ssd street.jpg --json        {"pictures": [{"file", "detections": [{"index", "label", "score", "box": [x0, y0, x1, y1]}]}]})";

void add_common(CLI::App& app, PictureOptions& options, const char* top_k) {
  app.add_option("MODEL", options.model, "NAME in the daemon, or PATH or URL of a checkpoint")->required();
  app.add_option("IMAGE", options.files, "pictures: JPEG, PNG, ...")->required();
  app.add_option("--top-k", options.top_k, top_k)->check(CLI::Range(1, 1'000'000));
  app.add_option("--preset", options.preset, "how to prepare pictures, instead of the model's own way")
      ->check(CLI::IsMember(preset_names()));
  app.add_option(
         "--precision", options.precision,
         "with PATH: f32; f32-fast, which allows Winograd; bf16; or auto, the fastest (default: as in model.toml, else f32)")
      ->check(CLI::IsMember({"f32", "f32-fast", "bf16", "auto"}));
  app.add_option("--contexts", options.contexts, "pictures at the same time (default: 1 in this process, 4 with the daemon)")
      ->check(CLI::Range(1, 256));
  app.add_flag("--json", options.json, "print JSON");
}

// The library that decodes pictures loads a hundred others, so only a program of its own is linked with it: they would make every
// other command start ten times as slowly.
template <typename Options>
Command make(CLI::App& application, CLI::App* (*add)(CLI::App&, Options&)) {
  const auto options = std::make_shared<Options>();
  return {add(application, *options), [options](Invocation& invocation) { return become("shoal-pictures", invocation.argv); }};
}

}  // namespace

CLI::App* add_classify(CLI::App& application, ClassifyOptions& options) {
  CLI::App* app = application.add_subcommand("classify", kClassifyAbout);
  app->footer(kClassifyMore);
  add_common(*app, options, "classes per picture (default 5)");
  return app;
}

CLI::App* add_detect(CLI::App& application, DetectOptions& options) {
  CLI::App* app = application.add_subcommand("detect", kDetectAbout);
  app->footer(kDetectMore);
  add_common(*app, options, "objects per picture, those with the highest scores (default: all)");
  app->add_option("--threshold", options.threshold, "the lowest score that counts (default 0.5)")
      ->check(CLI::Range(0.0, 1.0))
      ->check(not_nan);
  app->add_option("--labels", options.labels, "file of class names, line i = class i, instead of the model's own")
      ->type_name("FILE")
      ->check(not_empty);
  app->add_option(
         "--draw", options.draw,
         "write the picture with the boxes: a .png or .jpg; a directory if it is one, ends with /, or there are several pictures")
      ->type_name("FILE")
      ->check(not_empty);
  app->add_option("--format", options.format,
                  "what the outputs mean: multibox, nms (both rows of 6) or gluoncv (three outputs); default: found by their "
                  "shapes and names")
      ->check(CLI::IsMember({"multibox", "nms", "gluoncv"}));
  return app;
}

Command make_classify(CLI::App& application) { return make(application, add_classify); }
Command make_detect(CLI::App& application) { return make(application, add_detect); }

}  // namespace shoal::tool
