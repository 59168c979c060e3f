// The extension module shoal._vision: pictures. It links OpenCV.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "client/python/src/client.hpp"
#include "client/python/src/preprocess.hpp"
#include "shoal/image_classifier.hpp"
#include "shoal/object_detector.hpp"

namespace shoal::python {

using namespace nb::literals;

namespace {

namespace fs = std::filesystem;

// After so many pictures handlers of signals run.
constexpr std::size_t kPicturesAtOnce = 64;

/// What Image is made of: a file, the bytes of one, or pixels.
using Picture = std::variant<fs::path, nb::bytes, Image>;

/// For messages: an array by its numbers, anything else by its type.
std::string description_of(nb::handle value) {
  if (!nb::hasattr(value, "dtype") || !nb::hasattr(value, "shape")) return nb::repr(value.type()).c_str();
  const nb::str dtype = value.attr("dtype").attr("name"), shape = nb::repr(value.attr("shape"));
  return format("an array of {} and shape {}", dtype.c_str(), shape.c_str());
}

Picture picture_of(nb::handle value) {
  using Pixels = nb::ndarray<const std::uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
  if (nb::isinstance<nb::str>(value)) {
    PyObject* const path = PyUnicode_EncodeFSDefault(value.ptr());  // any file's name, which may be no UTF-8
    if (!path) throw nb::python_error();
    return fs::path(nb::steal<nb::bytes>(path).c_str());
  }
  if (nb::isinstance<nb::bytes>(value)) return nb::borrow<nb::bytes>(value);
  if (Pixels pixels; nb::try_cast<Pixels>(value, pixels, false)) {
    const std::span bytes(pixels.data(), pixels.size());
    return value_of(
        Image::from_pixels(bytes, static_cast<int>(pixels.shape(0)), static_cast<int>(pixels.shape(1)), PixelFormat::kRgb));
  }
  raise(invalid_argument("a picture is a path, the bytes of a file, or an array of uint8 and shape (height, width, 3); not {}",
                         description_of(value)));
}

/// Without the GIL.
Result<Image> decoded(const Picture& picture) {
  if (const auto* const file = std::get_if<fs::path>(&picture)) return Image::read(*file);
  if (const auto* const bytes = std::get_if<nb::bytes>(&picture))
    return Image::decode({static_cast<const std::byte*>(bytes->data()), bytes->size()});
  return std::get<Image>(picture);
}

/// Calls `run` with files, which it reads as it needs them, or with pictures in memory.
template <typename Answer, typename Run>
Result<std::vector<Answer>> answers_for(const std::vector<Picture>& pictures, const Run& run) {
  const nb::gil_scoped_release released;
  if (std::ranges::all_of(pictures, [](const Picture& picture) { return std::holds_alternative<fs::path>(picture); })) {
    std::vector<fs::path> files;
    for (const Picture& picture : pictures) files.push_back(std::get<fs::path>(picture));
    return run(std::span<const fs::path>(files));
  }
  std::vector<Image> images;
  for (const Picture& picture : pictures) {
    SHOAL_ASSIGN_OR_RETURN(Image image, decoded(picture));
    images.push_back(std::move(image));
  }
  return run(std::span<const Image>(images));
}

/// The same for a list, a part at a time. Raises what a signal's handler raises.
template <typename Answer, typename Run>
std::vector<Answer> answers_for(const nb::list& values, const Run& run) {
  std::vector<Answer> answers;
  while (answers.size() < values.size()) {
    std::vector<Picture> pictures;
    for (std::size_t i = answers.size(); i < values.size() && pictures.size() < kPicturesAtOnce; ++i)
      pictures.push_back(picture_of(values[i]));
    std::ranges::move(value_of(answers_for<Answer>(pictures, run)), std::back_inserter(answers));
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return answers;
}

std::string label_of(const auto& found) { return found.label.empty() ? std::to_string(found.index) : found.label; }

/// An ImageClassifier for each number of classes that is asked for.
class ClassifierObject {
 public:
  ClassifierObject(const ClientObject& client, const std::string& model, ImageClassifierOptions options, SubmitOptions submit)
      : client_(client.client()), model_(client.model_name(model)), options_(std::move(options)), submit_(submit) {
    classifier(options_.top_k);
  }

  nb::list classify(const nb::list& values, nb::handle top_k) {
    const ImageClassifier& classifier = this->classifier(number_of<std::size_t>(top_k, "top_k"));
    nb::list all;
    for (const Classes& classes :
         answers_for<Classes>(values, [&](auto pictures) { return classifier.classify(pictures, submit_); })) {
      nb::list list;
      for (const ClassScore& score : classes) list.append(nb::make_tuple(label_of(score), score.probability));
      all.append(list);
    }
    return all;
  }
  const ImageClassifier& task() { return classifier(options_.top_k); }

 private:
  const ImageClassifier& classifier(std::size_t top_k) {
    auto found = classifiers_.find(top_k);
    if (found == classifiers_.end()) {
      ImageClassifierOptions options = options_;
      options.top_k = top_k;
      ImageClassifier made = blocking([&] { return ImageClassifier::create(client_, model_, options); });
      found = classifiers_.emplace(top_k, std::move(made)).first;
    }
    return found->second;
  }

  const Client client_;
  const std::string model_;
  const ImageClassifierOptions options_;
  const SubmitOptions submit_;
  std::map<std::size_t, ImageClassifier> classifiers_;
};

class DetectorObject {
 public:
  DetectorObject(const ClientObject& client, const std::string& model, const ObjectDetectorOptions& options, SubmitOptions submit)
      : detector_(
            blocking([&, its = client.client()] { return ObjectDetector::create(its, client.model_name(model), options); })),
        submit_(submit) {}

  nb::list detect(const nb::list& values) {
    nb::list all;
    for (const Detections& detections :
         answers_for<Detections>(values, [&](auto pictures) { return detector_.detect(pictures, submit_); })) {
      nb::list list;
      for (const Detection& found : detections) {
        const Box& box = found.box;
        list.append(nb::make_tuple(label_of(found), found.score, nb::make_tuple(box.x0, box.y0, box.x1, box.y1)));
      }
      all.append(list);
    }
    return all;
  }
  const ObjectDetector& task() { return detector_; }

 private:
  const ObjectDetector detector_;
  const SubmitOptions submit_;
};

DetectionFormat format_of(const std::string& name) {
  if (name.empty()) return DetectionFormat::kAuto;
  if (name == "multibox") return DetectionFormat::kMultiBoxRows;
  if (name == "nms") return DetectionFormat::kNmsRows;
  if (name == "gluoncv") return DetectionFormat::kIdsScoresBoxes;
  raise(invalid_argument("no format '{}'; there are multibox, nms, gluoncv", name));
}

template <typename Object>
nb::class_<Object> define_task(nb::module_& module, const char* name) {
  return nb::class_<Object>(module, name)
      .def_prop_ro("warnings",
                   [](Object& self) {
                     nb::list warnings;
                     for (const auto& warning : self.task().warnings()) warnings.append(std::string(warning));
                     return warnings;
                   })
      .def_prop_ro("preprocess", [](Object& self) { return tuple_of_preprocess(self.task().preprocess()); });
}

}  // namespace

void define_vision(nb::module_& module) {
  define_task<ClassifierObject>(module, "ImageClassifier")
      .def(
          "__init__",
          [](ClassifierObject* self, const ClientObject& client, const std::string& model, nb::handle top_k,
             nb::handle preprocess, const std::vector<std::string>& labels, nb::handle batch, nb::handle timeout,
             nb::handle version) {
            new (self) ClassifierObject(client, model,
                                        {.preprocess = preprocess_of(preprocess),
                                         .top_k = number_of<std::size_t>(top_k, "top_k"),
                                         .batch = number_of<std::size_t>(batch, "batch"),
                                         .labels = labels,
                                         .version = number_of<std::uint64_t>(version, "version")},
                                        options_of(timeout));
          },
          "client"_a, "model"_a, "top_k"_a, "preprocess"_a.none(), "labels"_a, "batch"_a, "timeout"_a.none(), "version"_a)
      .def("classify", &ClassifierObject::classify, "pictures"_a, "top_k"_a);
  define_task<DetectorObject>(module, "ObjectDetector")
      .def(
          "__init__",
          [](DetectorObject* self, const ClientObject& client, const std::string& model, float threshold, nb::handle top_k,
             nb::handle preprocess, const std::vector<std::string>& labels, const std::string& format,
             const std::vector<std::string>& outputs, nb::handle batch, nb::handle timeout, nb::handle version) {
            new (self) DetectorObject(client, model,
                                      {.preprocess = preprocess_of(preprocess),
                                       .threshold = threshold,
                                       .top_k = number_of<std::size_t>(top_k, "top_k"),
                                       .batch = number_of<std::size_t>(batch, "batch"),
                                       .format = format_of(format),
                                       .detections = outputs,
                                       .labels = labels,
                                       .version = number_of<std::uint64_t>(version, "version")},
                                      options_of(timeout));
          },
          "client"_a, "model"_a, "threshold"_a, "top_k"_a, "preprocess"_a.none(), "labels"_a, "format"_a, "outputs"_a, "batch"_a,
          "timeout"_a.none(), "version"_a)
      .def("detect", &DetectorObject::detect, "pictures"_a);
}

}  // namespace shoal::python

NB_MODULE(_vision, module) {
  nanobind::set_leak_warnings(false);
  nanobind::module_::import_("shoal._shoal");  // which has Client
  shoal::python::define_vision(module);
}
