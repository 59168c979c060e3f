#include "client/vision/src/detections.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <utility>

#include "shm/base/errors.hpp"

namespace shoal::vision {
namespace {

constexpr std::int64_t kRowWidth = 6;  // class, score, x0, y0, x1, y1

// Boxes that are shares of the sides reach a little beyond 0 and 1. In pixels nearly all reach farther.
constexpr double kFarthestShare = 4;

bool is_rows_of(const DataDesc& output, std::int64_t width) { return output.shape.rank() == 3 && output.shape[2] == width; }

bool may_be_rows_of(const DataDesc& output, std::int64_t width) {
  return !output.shape.is_known() || is_rows_of(output, width) || is_rows_of(output, -1);
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

/// What the name of an output with one number per row says.
enum class Said { kNothing, kClasses, kScores };

Said said_by(const std::string& name) {
  std::string words = lower_case("_" + name + "_");
  std::ranges::replace_if(
      words, [](char letter) { return letter < 'a' || letter > 'z'; }, '_');
  const auto has = [&](const char* text) { return words.find(text) != std::string::npos; };
  if (has("score") || has("prob") || has("confidence")) return Said::kScores;  // "class_scores", too
  return has("class") || has("label") || has("_cls_") || has("_id_") || has("_ids_") ? Said::kClasses : Said::kNothing;
}

std::string list_of(std::span<const DataDesc> outputs) {
  std::string text;
  for (const DataDesc& output : outputs)
    text += format("{}'{}' {}", text.empty() ? "" : ", ", output.name, descriptor_text(output));
  return text;
}

Result<std::vector<std::size_t>> named(const std::string& model, std::span<const DataDesc> described,
                                       std::span<const std::string> names) {
  std::vector<std::size_t> places;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(described, name, &DataDesc::name);
    if (found == described.end()) return not_found("model '{}' has no output '{}' (it has: {})", model, name, list_of(described));
    places.push_back(static_cast<std::size_t>(found - described.begin()));
  }
  if (places.size() <= 1 || places.size() == 3) return places;
  return invalid_argument("model '{}': {} outputs are named; a detector has one with rows, or three: classes, scores, boxes",
                          model, places.size());
}

std::vector<std::size_t> all_of_width(std::span<const DataDesc> described, std::int64_t width) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < described.size(); ++i) {
    if (is_rows_of(described[i], width)) places.push_back(i);
  }
  return places;
}

/// Numbers of an output as floats, without a copy if they are that.
class Floats {
 public:
  static Result<Floats> of(const NamedTensor& output) {
    Floats floats;
    if (output.tensor.dtype() == DType::kFloat32) {
      floats.values_ = output.tensor.values<float>();
      return floats;
    }
    auto converted = Numbers(output.tensor.view()).as<float>();
    if (!converted.ok()) return converted.status().with_context(format("output '{}'", output.name));
    floats.owned_ = *std::move(converted);
    floats.values_ = floats.owned_;
    return floats;
  }
  float operator[](std::size_t i) const { return values_[i]; }

 private:
  std::vector<float> owned_;
  std::span<const float> values_;
};

/// One output of a batch of rows: column `first` of row `row` of picture `item`.
struct Column {
  Floats numbers;
  std::size_t rows = 0, width = 0, first = 0;
  float at(std::size_t item, std::size_t row, std::size_t column = 0) const {
    return numbers[(item * rows + row) * width + first + column];
  }
};

Result<Column> column_of(const std::string& model, const Tensors& outputs, std::size_t place, std::size_t pictures,
                         std::size_t first, std::size_t columns) {
  const auto fail = [&](const std::string& found) {
    return failed_precondition("model '{}' answers with {}, not with batch x rows x {} or more numbers for {} pictures", model,
                               found, first + columns, pictures);
  };
  if (place >= outputs.size()) return fail(format("{} outputs", outputs.size()));
  const auto& [name, tensor] = outputs[place];
  const Shape& shape = tensor.shape();
  if (shape.rank() != 3 || shape[0] != static_cast<std::int64_t>(pictures) ||
      shape[2] < static_cast<std::int64_t>(first + columns) || tensor.view().data == nullptr)
    return fail(format("output '{}' of shape {}", name, shape.to_string()));
  SHOAL_ASSIGN_OR_RETURN(Floats numbers, Floats::of(outputs[place]));
  return Column{std::move(numbers), static_cast<std::size_t>(shape[1]), static_cast<std::size_t>(shape[2]), first};
}

/// From a place in the input to one in the picture.
struct Mapping {
  Placement placement;
  double unit_x = 1, unit_y = 1;  ///< pixels of the input per unit of the box
  PictureSize picture;

  /// Nothing for a box that is no number, or not within the picture.
  std::optional<Box> map(const std::array<float, 4>& box) const {
    const double x0 = x(box[0]), y0 = y(box[1]), x1 = x(box[2]), y1 = y(box[3]);
    if (!(x0 < x1 && y0 < y1)) return {};  // NaN, too
    return Box{static_cast<float>(x0), static_cast<float>(y0), static_cast<float>(x1), static_cast<float>(y1)};
  }

 private:
  double x(float value) const { return to_picture(value * unit_x, placement.left, placement.width, picture.width); }
  double y(float value) const { return to_picture(value * unit_y, placement.top, placement.height, picture.height); }
  static double to_picture(double value, int before, int resized, int whole) {
    if (!std::isfinite(value)) return std::nan("");
    return std::clamp((value - before) * whole / resized, 0.0, static_cast<double>(whole));
  }
};

/// Which of two outputs has the classes and which the scores. If their names say nothing, or the same
/// ("classy0_slice_axis1_output" and the like), the order is GluonCV's, whose boxes come last.
Result<DetectionOutputs> split_outputs(const std::string& model, std::span<const DataDesc> described, std::size_t first,
                                       std::size_t second, std::size_t boxes) {
  const Said one = said_by(described[first].name), other = said_by(described[second].name);
  if (one == other && boxes < second) {
    return failed_precondition(
        "model '{}': whether '{}' or '{}' has the classes cannot be told (its outputs are {}): "
        "give the names of classes, scores, boxes in `outputs` (in C++ `detections`)",
        model, described[first].name, described[second].name, list_of(described));
  }
  if (one != other && (one == Said::kScores || other == Said::kClasses)) std::swap(first, second);
  return DetectionOutputs{DetectionFormat::kIdsScoresBoxes, first, second, boxes};
}

}  // namespace

Result<DetectionOutputs> find_outputs(const std::string& model, std::span<const DataDesc> described, DetectionFormat format,
                                      std::span<const std::string> names) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::size_t> given, named(model, described, names));
  const bool wants_rows = format == DetectionFormat::kMultiBoxRows || format == DetectionFormat::kNmsRows;
  const auto as_rows = [&](std::size_t place) -> DetectionOutputs {
    const bool is_nms = lower_case(described[place].name).find("nms") != std::string::npos;
    const auto guessed = is_nms ? DetectionFormat::kNmsRows : DetectionFormat::kMultiBoxRows;
    return {wants_rows ? format : guessed, place, place, place, !wants_rows && !is_nms};
  };
  if (given.size() == 1 && format != DetectionFormat::kIdsScoresBoxes) return as_rows(given[0]);
  if (given.size() == 3 && !wants_rows && may_be_rows_of(described[given[0]], 1) && may_be_rows_of(described[given[1]], 1) &&
      may_be_rows_of(described[given[2]], 4))
    return DetectionOutputs{DetectionFormat::kIdsScoresBoxes, given[0], given[1], given[2]};
  if (given.empty()) {
    const std::vector<std::size_t> rows = all_of_width(described, kRowWidth), single = all_of_width(described, 1),
                                   boxes = all_of_width(described, 4);
    if (rows.size() == 1 && format != DetectionFormat::kIdsScoresBoxes) return as_rows(rows[0]);
    if (rows.empty() && single.size() == 2 && boxes.size() == 1 && !wants_rows)
      return split_outputs(model, described, single[0], single[1], boxes[0]);
  }
  return failed_precondition(
      "model '{}' is no detector that is known: its outputs are {}; wanted are batch x rows x 6, or classes, scores and "
      "boxes with 1, 1 and 4 in place of 6. Say which by `outputs` (in C++ `detections`, for `shoal detect` in model.toml) and "
      "`format`",
      model, list_of(described));
}

Result<std::vector<Detections>> read_detections(const std::string& model, const Tensors& outputs, const DetectionOutputs& which,
                                                std::span<const PictureSize> pictures, const Preprocess& preprocess,
                                                const ReadOptions& options) {
  const bool is_split = which.format == DetectionFormat::kIdsScoresBoxes;
  SHOAL_ASSIGN_OR_RETURN(const Column ids, column_of(model, outputs, which.ids, pictures.size(), 0, 1));
  SHOAL_ASSIGN_OR_RETURN(const Column scores, column_of(model, outputs, which.scores, pictures.size(), is_split ? 0 : 1, 1));
  SHOAL_ASSIGN_OR_RETURN(const Column boxes, column_of(model, outputs, which.boxes, pictures.size(), is_split ? 0 : 2, 4));
  if (ids.rows != scores.rows || ids.rows != boxes.rows) {
    return failed_precondition("model '{}' answers with {} classes, {} scores and {} boxes", model, ids.rows, scores.rows,
                               boxes.rows);
  }
  std::vector<Detections> all(pictures.size());
  for (std::size_t item = 0; item < pictures.size(); ++item) {
    Mapping mapping{.picture = pictures[item]};
    SHOAL_ASSIGN_OR_RETURN(mapping.placement, place(pictures[item].height, pictures[item].width, preprocess));
    if (which.format == DetectionFormat::kMultiBoxRows) {
      mapping.unit_x = static_cast<double>(preprocess.crop_width);
      mapping.unit_y = static_cast<double>(preprocess.crop_height);
    }
    Detections& found = all[item];
    for (std::size_t row = 0; row < ids.rows; ++row) {
      const float id = ids.at(item, row), score = scores.at(item, row);
      if (!(id >= 0 && id < 0x1p31f)) continue;  // comparisons with NaN are false
      if (id != std::floor(id)) {
        return failed_precondition(
            "model '{}': output '{}' has {} where a class is wanted, a whole number: it has other numbers, or in another order "
            "than {}",
            model, outputs[which.ids].name, id, is_split ? "classes, scores, boxes" : "(class, score, x0, y0, x1, y1)");
      }
      if (!(score >= options.threshold) || !std::isfinite(score)) continue;
      const std::array<float, 4> box{boxes.at(item, row, 0), boxes.at(item, row, 1), boxes.at(item, row, 2),
                                     boxes.at(item, row, 3)};
      const auto is_far = [](float value) { return std::isfinite(value) && std::abs(value) > kFarthestShare; };
      if (which.is_guessed && std::ranges::any_of(box, is_far)) {
        return failed_precondition(
            "model '{}': output '{}' has the box ({}, {}, {}, {}), which is not in shares of the sides: if boxes are in pixels, "
            "say DetectionFormat::kNmsRows",
            model, outputs[which.boxes].name, box[0], box[1], box[2], box[3]);
      }
      const auto index = static_cast<std::size_t>(id);
      const auto mapped = mapping.map(box);
      if (!mapped) continue;
      found.push_back({static_cast<std::int64_t>(index), index < options.labels.size() ? options.labels[index] : std::string(),
                       score, *mapped});
    }
    std::ranges::stable_sort(found, std::ranges::greater(), &Detection::score);
    if (options.top_k > 0 && found.size() > options.top_k) found.resize(options.top_k);
  }
  return all;
}

}  // namespace shoal::vision
