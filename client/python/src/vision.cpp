// The extension module shoal._vision: pictures. It links OpenCV.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <vector>

#include "client/python/src/client.hpp"
#include "client/python/src/status_errors.hpp"
#include "shm/base/errors.hpp"
#include "shoal/image_classifier.hpp"

namespace shoal::python {

using namespace nb::literals;

namespace {

using Pixels = nb::ndarray<const std::uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;

/// What Image is made of. It is read before the GIL is released; decoding needs none.
class Picture {
 public:
  explicit Picture(nb::handle value) {
    if (nb::isinstance<nb::str>(value)) {
      path_ = nb::cast<std::string>(value);
    } else if (nb::isinstance<nb::bytes>(value)) {
      const auto bytes = nb::borrow<nb::bytes>(value);
      const auto* const begin = reinterpret_cast<const std::byte*>(bytes.c_str());
      encoded_.assign(begin, begin + bytes.size());
    } else if (Pixels pixels; nb::try_cast<Pixels>(value, pixels, false)) {
      height_ = static_cast<int>(pixels.shape(0));
      width_ = static_cast<int>(pixels.shape(1));
      rgb_.assign(pixels.data(), pixels.data() + pixels.size());
    } else {
      raise(
          invalid_argument("a picture is a path, the bytes of a file, or an array of uint8 and shape (height, width, 3); not {}",
                           nb::repr(value.type()).c_str()));
    }
  }
  Result<Image> image() && {
    if (!path_.empty()) return Image::read(path_);
    if (!rgb_.empty()) return Image::from_rgb(height_, width_, std::move(rgb_));
    return Image::decode(encoded_);
  }

 private:
  std::string path_;
  std::vector<std::byte> encoded_;
  int height_ = 0, width_ = 0;
  std::vector<std::uint8_t> rgb_;
};

/// An ImageClassifier for each number of classes that is asked for.
class ClassifierObject {
 public:
  ClassifierObject(const ClientObject& client, std::string model, ImageClassifierOptions options)
      : client_(client.client()), model_(std::move(model)), options_(std::move(options)) {
    classifier(options_.top_k);
  }

  nb::list classify(const nb::list& values, std::size_t top_k) {
    std::vector<Picture> pictures;
    for (const nb::handle value : values) pictures.emplace_back(value);
    const ImageClassifier& classifier = this->classifier(top_k);
    auto classes = [&]() -> Result<std::vector<Classes>> {
      const nb::gil_scoped_release released;
      std::vector<Image> images;
      for (Picture& picture : pictures) {
        SHOAL_ASSIGN_OR_RETURN(Image image, std::move(picture).image());
        images.push_back(std::move(image));
      }
      return classifier.classify(images);
    }();
    nb::list all;
    for (const Classes& of_picture : value_of(std::move(classes))) {
      nb::list list;
      for (const ClassScore& score : of_picture)
        list.append(nb::make_tuple(score.label.empty() ? std::to_string(score.index) : score.label, score.probability));
      all.append(list);
    }
    return all;
  }
  std::vector<std::string> warnings() { return classifier(options_.top_k).warnings(); }

 private:
  const ImageClassifier& classifier(std::size_t top_k) {
    auto found = classifiers_.find(top_k);
    if (found == classifiers_.end()) {
      options_.top_k = top_k;
      auto made = [&] {
        const nb::gil_scoped_release released;
        return ImageClassifier::create(client_, model_, options_);
      }();
      found = classifiers_.emplace(top_k, value_of(std::move(made))).first;
    }
    return found->second;
  }

  const Client client_;
  const std::string model_;
  ImageClassifierOptions options_;
  std::map<std::size_t, ImageClassifier> classifiers_;
};

}  // namespace

void define_vision(nb::module_& module) {
  nb::class_<ClassifierObject>(module, "ImageClassifier")
      .def(
          "__init__",
          [](ClassifierObject* self, const ClientObject& client, std::string model, std::size_t top_k, std::size_t batch,
             nb::handle timeout, std::uint64_t version) {
            ImageClassifierOptions options{.top_k = top_k, .batch = batch, .submit = options_of(timeout, version, 0, 0)};
            new (self) ClassifierObject(client, std::move(model), std::move(options));
          },
          "client"_a, "model"_a, "top_k"_a, "batch"_a, "timeout"_a.none(), "version"_a)
      .def("classify", &ClassifierObject::classify, "pictures"_a, "top_k"_a)
      .def_prop_ro("warnings", &ClassifierObject::warnings);
}

}  // namespace shoal::python

NB_MODULE(_vision, module) {
  nanobind::set_leak_warnings(false);
  nanobind::module_::import_("shoal._shoal");  // which has Client
  shoal::python::define_vision(module);
}
