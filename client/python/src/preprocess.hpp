// Preprocess of libshoal, and the named tuple of the package.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
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
  std::tuple<std::int64_t, std::pair<std::int64_t, std::int64_t>, std::string, Channels, Channels, bool, std::uint8_t> given;
  if (!nb::try_cast(value, given))
    raise(invalid_argument("{} is no preprocessing: see help(shoal.Preprocess)", nb::repr(value).c_str()));
  const std::string& order = std::get<2>(given);
  const auto numbers = [&](const Channels& channels) {
    const float* const one = std::get_if<float>(&channels);
    return one ? std::vector<float>(order == "GRAY" ? 1 : 3, *one) : std::get<std::vector<float>>(channels);
  };
  Preprocess preprocess;
  preprocess.resize = std::get<0>(given);
  preprocess.crop_height = std::get<1>(given).first;
  preprocess.crop_width = std::get<1>(given).second;
  preprocess.order = order;
  preprocess.mean = numbers(std::get<3>(given));
  preprocess.scale = numbers(std::get<4>(given));
  preprocess.letterbox = std::get<5>(given);
  preprocess.border = std::get<6>(given);
  return preprocess;
}

}  // namespace shoal::python
