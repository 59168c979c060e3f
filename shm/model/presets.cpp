#include "shm/model/presets.hpp"

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"

namespace shoal {
namespace {

struct Preset {
  std::string_view name;
  Preprocess preprocess;
};

const std::vector<Preset>& presets() {
  const List<float> imagenet_mean = {123.675f, 116.28f, 103.53f}, imagenet_scale = {1 / 58.395f, 1 / 57.12f, 1 / 57.375f};
  static const std::vector<Preset> all = {
      // GluonCV and torchvision: mean and deviation of ImageNet. They use the scale 0..1, these numbers 0..255.
      {"imagenet", {.resize = 256, .crop_height = 224, .crop_width = 224, .mean = imagenet_mean, .scale = imagenet_scale}},
      // Caffe, and most of MXNet's own model zoo before Gluon.
      {"imagenet-bgr-caffe", {.resize = 256, .crop_height = 224, .crop_width = 224, .order = "BGR", .mean = {104, 117, 123}}},
      {"cifar10",
       {.resize = 32,
        .crop_height = 32,
        .crop_width = 32,
        .mean = {0.4914f * 255, 0.4822f * 255, 0.4465f * 255},
        .scale = {1 / (0.2023f * 255), 1 / (0.1994f * 255), 1 / (0.2010f * 255)}}},
      {"mnist", {.crop_height = 28, .crop_width = 28, .order = "GRAY", .mean = {0}, .scale = {1 / 255.0f}}},
      {"none", {}},
      // Detectors: the whole picture. GluonCV's SSD, YOLO and Faster R-CNN; the SSD of MXNet's examples; darknet.
      {"gluoncv-detector", {.mean = imagenet_mean, .scale = imagenet_scale}},
      {"mxnet-ssd", {.mean = {123, 117, 104}}},
      {"darknet", {.scale = {1 / 255.0f, 1 / 255.0f, 1 / 255.0f}, .letterbox = true}},
  };
  return all;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

Result<Preprocess> preprocess_preset(const std::string& name) {
  std::string names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.preprocess;
    names += format("{}{}", names.empty() ? "" : ", ", preset.name);
  }
  return not_found("no preset '{}'; there are {}", name, names);
}

}  // namespace shoal
