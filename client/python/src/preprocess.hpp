// Preprocess of libshoal, and the named tuple of the package.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/python/src/status_errors.hpp"
#include "shm/base/errors.hpp"
#include "shoal/model_info.hpp"

namespace shoal::python {

/// In the order of shoal.Preprocess.
inline nb::tuple tuple_of_preprocess(const Preprocess& preprocess) {
  const auto numbers = [](const auto& values) {
    nb::list list;
    for (const float value : values) list.append(value);
    return nb::tuple(list);
  };
  return nb::make_tuple(preprocess.resize, nb::make_tuple(preprocess.crop_height, preprocess.crop_width),
                        preprocess.order.c_str(), numbers(preprocess.mean), numbers(preprocess.scale), preprocess.letterbox,
                        preprocess.border);
}

/// Of a shoal.Preprocess, or None. Errors: raises InvalidArgument.
inline Optional<Preprocess> preprocess_of(nb::handle value) {
  if (value.is_none()) return {};
  using Channels = std::variant<float, std::vector<float>>;  // one number for all, or one each
  std::vector<nb::object> fields;
  if (!nb::try_cast(value, fields) || fields.size() != 7)
    raise(invalid_argument("{} is no preprocessing: see help(shoal.Preprocess)", nb::repr(value).c_str()));
  const auto read = [&](std::size_t i, const char* name, const char* wanted, auto& field) {
    if (!nb::try_cast(fields[i], field))
      raise(invalid_argument("preprocess: {} is {}; it must be {}", name, nb::repr(fields[i]).c_str(), wanted));
  };
  Preprocess preprocess;
  std::pair<std::int64_t, std::int64_t> crop;
  std::string order;
  Channels mean, scale;
  read(0, "resize", "a whole number of pixels", preprocess.resize);
  read(1, "crop", "(height, width)", crop);
  read(2, "order", "RGB, BGR or GRAY", order);
  read(3, "mean", "a number, or one per channel", mean);
  read(4, "scale", "a number, or one per channel", scale);
  read(5, "letterbox", "True or False", preprocess.letterbox);
  read(6, "border", "0 to 255", preprocess.border);
  const auto numbers = [&](const Channels& channels) {
    const float* const one = std::get_if<float>(&channels);
    return one ? std::vector<float>(order == "GRAY" ? 1 : 3, *one) : std::get<std::vector<float>>(channels);
  };
  preprocess.crop_height = crop.first;
  preprocess.crop_width = crop.second;
  preprocess.order = order;
  preprocess.mean = numbers(mean);
  preprocess.scale = numbers(scale);
  return preprocess;
}

}  // namespace shoal::python
