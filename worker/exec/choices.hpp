// Choices: the algorithms that a model's programs use where its device offers several. Measured once, then recorded.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "shoal/result.hpp"

namespace shoal::worker {

/// How far results may differ from those of direct algorithms in float32. docs/performance.md states the bounds.
enum class Precision {
  kF32,      ///< no difference
  kF32Fast,  ///< Winograd's convolutions are allowed
  kBf16,     ///< weights, and values between convolutions and products, have 8 bits of precision; sums are in float32
  kAuto,     ///< the fastest of these that keeps ModelOptions::max_error; float32 without a measurement
};
///   Errors  kInvalidArgument: names the known words
Result<Precision> parse_precision(std::string_view word);
std::string_view word_of(Precision precision);

/// Empty: the device's default, without a measurement.
struct Choices {
  std::optional<Precision> precision;             ///< none: as the options of the model say
  std::string layout;                             ///< of whole regions; one of the device's names
  std::map<std::string, std::string> algorithms;  ///< by node_key(): the implementation's name
  int preference = 0;  ///< of nodes not named above: the index of their algorithm; 0 if they have fewer

  /// The error of bf16 with this model, if it was measured: the largest difference from float32, as a share of max(1, the largest
  /// result).
  std::optional<double> bf16_error;

  bool empty() const { return !precision && layout.empty() && algorithms.empty(); }
  /// One line per choice: "precision WORD", "bf16_error NUMBER", "layout WORD", then "KEY NAME". `preference` is left out: only
  /// measuring needs it.
  std::string to_text() const;
  ///   Errors  kDataLoss: names the line
  static Result<Choices> parse(std::string_view text);
};

}  // namespace shoal::worker
