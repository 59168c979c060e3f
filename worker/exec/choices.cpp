#include "worker/exec/choices.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "shm/base/errors.hpp"

namespace shoal::worker {

namespace {

constexpr std::pair<std::string_view, Precision> kPrecisions[] = {
    {"f32", Precision::kF32}, {"f32-fast", Precision::kF32Fast}, {"bf16", Precision::kBf16}, {"auto", Precision::kAuto}};

}  // namespace

Result<Precision> parse_precision(std::string_view word) {
  for (const auto& [known, precision] : kPrecisions) {
    if (known == word) return precision;
  }
  return invalid_argument("precision '{}' is not known: there are f32, f32-fast, bf16 and auto", word);
}

std::string_view word_of(Precision precision) {
  return std::ranges::find_if(kPrecisions, [&](const auto& each) { return each.second == precision; })->first;
}

std::string Choices::to_text() const {
  std::string text;
  if (precision) text += format("precision {}\n", word_of(*precision));
  if (bf16_error) text += format("bf16_error {}\n", *bf16_error);
  if (!layout.empty()) text += format("layout {}\n", layout);
  for (const auto& [key, name] : algorithms) text += format("{} {}\n", key, name);
  return text;
}

Result<Choices> Choices::parse(std::string_view text) {
  Choices choices;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size())
      return data_loss("a choice of algorithms wants 'KEY NAME', not '{}'", line);
    std::string key(line.substr(0, space)), name(line.substr(space + 1));
    if (key == "layout") {
      choices.layout = std::move(name);
    } else if (key == "precision") {
      SHOAL_ASSIGN_OR_RETURN(choices.precision, parse_precision(name));
    } else if (key == "bf16_error") {
      double error = 0;
      std::from_chars(name.data(), name.data() + name.size(), error);  // whatever the locale is
      choices.bf16_error = error;
    } else {
      choices.algorithms.insert_or_assign(std::move(key), std::move(name));
    }
  }
  return choices;
}

}  // namespace shoal::worker
