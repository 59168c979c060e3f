#include "shm/tensor/spec.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"

namespace shoal {
namespace {

const DimRange kAnySize;
constexpr std::size_t kMostNames = 255;  // bytes of a list of names in an error

bool is_narrowed(const TensorSpec& spec, int axis) {
  return spec.shape[axis] < 0 && static_cast<std::size_t>(axis) < spec.ranges.size() &&
         spec.ranges[static_cast<std::size_t>(axis)] != kAnySize;
}

std::optional<std::int64_t> parse_size(std::string_view text) {
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  const bool is_size = error == std::errc() && end == text.data() + text.size() && size >= 0;
  return is_size ? std::optional(size) : std::nullopt;
}

bool has_input(std::span<const TensorSpec> inputs, std::span<const std::string> ignored, std::string_view name) {
  return std::ranges::count(inputs, name, &TensorSpec::name) > 0 || std::ranges::count(ignored, name) > 0;
}

}  // namespace

Status check_matches(const TensorSpec& spec, DType dtype, const Shape& shape, std::string_view what) {
  if (dtype != spec.dtype) {
    return invalid_argument("{} '{}' is {} (wants {})", what, spec.name, dtype_name(dtype), dtype_name(spec.dtype));
  }
  bool matches = !spec.shape.is_known() || shape.rank() == spec.shape.rank();
  for (int axis = 0; matches && axis < spec.shape.rank(); ++axis) {
    matches = shape[axis] >= 0 && (spec.shape[axis] < 0 || shape[axis] == spec.shape[axis]);
  }
  if (!matches) {
    return invalid_argument("{} '{}' has shape {} (wants {})", what, spec.name, shape.to_string(), shape_text(spec));
  }
  for (int axis = 0; axis < spec.shape.rank(); ++axis) {
    if (!is_narrowed(spec, axis) || spec.ranges[static_cast<std::size_t>(axis)].contains(shape[axis])) continue;
    return invalid_argument("{} '{}' has shape {}: dimension {} is {} (wants {})", what, spec.name, shape.to_string(), axis,
                            shape[axis], to_string(spec.ranges[static_cast<std::size_t>(axis)]));
  }
  return {};
}

Status check_input_name(std::string_view model, std::span<const TensorSpec> inputs, std::span<const std::string> ignored,
                        std::string_view name) {
  if (has_input(inputs, ignored, name)) return {};
  return check_input_names(format("model '{}'", model), inputs, ignored, {std::string(name)});
}

Status check_input_names(std::string_view where, std::span<const TensorSpec> inputs, std::span<const std::string> ignored,
                         const std::set<std::string>& names) {
  std::string unknown;
  for (const std::string& name : names) {
    if (!has_input(inputs, ignored, name)) unknown += format("{}'{}'", unknown.empty() ? "" : ", ", name);
  }
  if (unknown.empty()) return {};
  return invalid_argument("{} has no input {} (it has: {})", where, shortened(unknown, kMostNames), names_of(inputs));
}

std::string names_of(std::span<const TensorSpec> specs) {
  std::string names;
  for (const TensorSpec& spec : specs) names += (names.empty() ? "" : ", ") + spec.name;
  return shortened(names, kMostNames);
}

std::string names_and_shapes(std::span<const TensorSpec> specs) {
  std::string text;
  for (const TensorSpec& spec : specs) text += format("{}{} {}", text.empty() ? "" : ", ", spec.name, shape_text(spec));
  return shortened(text, kMostNames);
}

std::string shape_text(const TensorSpec& spec) {
  if (spec.shape.rank() <= 0) return spec.shape.to_string();
  std::string text;
  for (int axis = 0; axis < spec.shape.rank(); ++axis) {
    if (axis > 0) text += 'x';
    if (is_narrowed(spec, axis)) {
      text += to_string(spec.ranges[static_cast<std::size_t>(axis)]);
    } else {
      text += spec.shape[axis] < 0 ? "?" : std::to_string(spec.shape[axis]);
    }
  }
  return text;
}

Result<DimRange> parse_range(std::string_view text) {
  const std::size_t dots = text.find("..");
  const auto lowest = parse_size(text.substr(0, dots));
  const std::string_view above = dots == std::string_view::npos ? std::string_view() : text.substr(dots + 2);
  const auto highest = above.empty() ? std::optional(kAnySize.highest) : parse_size(above);
  if (dots == std::string_view::npos || !lowest || !highest || *lowest > *highest) {
    return invalid_argument("'{}' is not a range of sizes: write the smallest and the largest, as in \"224..640\", or \"1..\"",
                            text);
  }
  return DimRange{*lowest, *highest};
}

std::string to_string(const DimRange& range) {
  const std::string lowest = std::to_string(range.lowest) + "..";
  return range.highest == kAnySize.highest ? lowest : lowest + std::to_string(range.highest);
}

}  // namespace shoal
