#include "tools/shoal/classify_options.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <memory>
#include <string>

#include "shm/base/errors.hpp"
#include "shm/base/helper_program.hpp"
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

/// Becomes shoal-classify. Returns only if that fails.
Finish become_classify(char** argv) {
  const std::string program = helper_program("shoal-classify", program_directory());
  if (program.empty())
    return not_found("shoal-classify is neither beside shoal in {} nor in ../libexec/shoal", program_directory().string());
  ::execv(program.c_str(), argv);
  return status_from_errno("run", program, errno);
}

}  // namespace

CLI::App* add_classify(CLI::App& application, ClassifyOptions& options) {
  CLI::App* app = application.add_subcommand("classify", kClassifyAbout);
  app->footer(kClassifyMore);
  app->add_option("MODEL", options.model, "NAME in the daemon, or PATH of a checkpoint")->required();
  app->add_option("IMAGE", options.files, "pictures: JPEG, PNG, ...")->required();
  app->add_option("--top-k", options.top_k, "classes per picture (default 5)")->check(CLI::Range(1, 1'000'000));
  app->add_option("--preset", options.preset, "how to prepare pictures, instead of the model's own way");
  app->add_option(
         "--precision", options.precision,
         "with PATH: f32; f32-fast, which allows Winograd; bf16; or auto, the fastest (default: as in model.toml, else f32)")
      ->check(CLI::IsMember({"f32", "f32-fast", "bf16", "auto"}));
  app->add_option("--contexts", options.contexts, "pictures at the same time (default: 1 in this process, 4 with the daemon)")
      ->check(CLI::Range(1, 256));
  app->add_flag("--json", options.json, "print JSON");
  return app;
}

// The library that decodes pictures loads a hundred others, so only a program of its own is linked with it: they would make every
// other command start ten times as slowly.
Command make_classify(CLI::App& application) {
  const auto options = std::make_shared<ClassifyOptions>();
  return {add_classify(application, *options), [options](Invocation& invocation) { return become_classify(invocation.argv); }};
}

}  // namespace shoal::tool
