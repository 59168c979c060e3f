#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"

namespace shoal {
namespace {

struct Preset {
  std::string_view name;
  Preprocess preprocess;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      // GluonCV and torchvision: mean and deviation of ImageNet. They use the scale 0..1, these numbers 0..255.
      {"imagenet", {256, 224, 224, "RGB", {123.675f, 116.28f, 103.53f}, {1 / 58.395f, 1 / 57.12f, 1 / 57.375f}}},
      // Caffe, and most of MXNet's own model zoo before Gluon.
      {"imagenet-bgr-caffe", {256, 224, 224, "BGR", {104, 117, 123}, {1, 1, 1}}},
      {"cifar10",
       {32,
        32,
        32,
        "RGB",
        {0.4914f * 255, 0.4822f * 255, 0.4465f * 255},
        {1 / (0.2023f * 255), 1 / (0.1994f * 255), 1 / (0.2010f * 255)}}},
      {"mnist", {0, 28, 28, "GRAY", {0}, {1 / 255.0f}}},
      {"none", {0, 0, 0, "RGB", {0, 0, 0}, {1, 1, 1}}},
      // Detectors: the whole picture. GluonCV's SSD, YOLO and Faster R-CNN; the SSD of MXNet's examples; darknet.
      {"gluoncv-detector", {0, 0, 0, "RGB", {123.675f, 116.28f, 103.53f}, {1 / 58.395f, 1 / 57.12f, 1 / 57.375f}}},
      {"mxnet-ssd", {0, 0, 0, "RGB", {123, 117, 104}, {1, 1, 1}}},
      {"darknet", {0, 0, 0, "RGB", {0, 0, 0}, {1 / 255.0f, 1 / 255.0f, 1 / 255.0f}, /*letterbox=*/true}},
  };
  return all;
}

}  // namespace

Result<Preprocess> preprocess_preset(const std::string& name) {
  std::string names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.preprocess;
    names += format("{}{}", names.empty() ? "" : ", ", preset.name);
  }
  return not_found("no preset '{}'; there are {}", name, names);
}

}  // namespace shoal
