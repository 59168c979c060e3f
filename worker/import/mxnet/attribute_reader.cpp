#include "worker/import/mxnet/attribute_reader.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "shm/base/errors.hpp"

namespace shoal::worker {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  text = trimmed(text);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  text = trimmed(text);
  if (text.size() > 1 && (text.back() == 'f' || text.back() == 'F') && lower(text[text.size() - 2]) != 'n')
    text.remove_suffix(1);  // "0.5f", not "inf"
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;  // 1e400, which is beyond double, is an error, too
  return value;
}

/// Calls take(entry) with the text of each entry of a tuple, until one is not taken. A text without brackets is the only entry.
/// Returns false if the text is no tuple, or an entry was not taken.
template <typename Take>
bool each_entry(std::string_view text, Take take) {
  text = trimmed(text);
  if (text.empty()) return false;
  if (text.front() != '(' && text.front() != '[') return take(text);
  if (text.size() < 2 || (text.back() != ')' && text.back() != ']')) return false;
  text = trimmed(text.substr(1, text.size() - 2));
  while (!text.empty()) {
    const auto comma = text.find(',');
    std::string_view entry = trimmed(text.substr(0, comma));
    if (entry.size() > 1 && entry.back() == 'L') entry.remove_suffix(1);  // how Python 2 wrote long integers
    if (!take(entry)) return false;
    text = comma == std::string_view::npos ? std::string_view() : trimmed(text.substr(comma + 1));
  }
  return true;
}

/// Keys with these endings are hints for the trainer. MXNet removes them before an operator reads its attributes.
bool is_training_hint(std::string_view key) {
  for (const std::string_view hint : {"ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage"}) {
    if (key == hint || (key.size() > hint.size() && key.ends_with(hint) && key[key.size() - hint.size() - 1] == '_')) return true;
  }
  return false;
}

}  // namespace

bool is_hint(std::string_view key) {
  const bool is_hidden = key.size() > 4 && key.starts_with("__") && key.ends_with("__");
  return is_hidden || is_training_hint(key);
}

std::optional<OptionalDims> parse_optional_tuple(std::string_view text) {
  OptionalDims dims;
  const bool is_tuple = each_entry(text, [&](std::string_view entry) {
    dims.push_back(parse_integer(entry));
    return dims.back() || entry == "None";
  });
  return is_tuple ? std::optional(std::move(dims)) : std::nullopt;
}

std::optional<std::vector<double>> parse_number_tuple(std::string_view text) {
  std::vector<double> numbers;
  const bool is_tuple = each_entry(text, [&](std::string_view entry) {
    const auto number = parse_number(entry);
    numbers.push_back(number.value_or(0));
    return number.has_value();
  });
  return is_tuple ? std::optional(std::move(numbers)) : std::nullopt;
}

std::optional<Dims> parse_tuple(std::string_view text) {
  const auto entries = parse_optional_tuple(text);
  if (!entries) return std::nullopt;
  Dims dims;
  for (const auto& entry : *entries) {
    if (!entry) return std::nullopt;
    dims.push_back(*entry);
  }
  return dims;
}

bool AttributeReader::has(const char* key) const {
  const auto found = node_.attributes.find(key);
  return found != node_.attributes.end() && found->second != "None";
}

const std::string* AttributeReader::find(const char* key, bool required) {
  read_.emplace(key);
  const auto found = node_.attributes.find(key);
  if (found != node_.attributes.end()) return &found->second;
  if (required) fail_node(StatusCode::kInvalidArgument, format("attribute {} is missing", key));
  return nullptr;
}

std::int64_t AttributeReader::integer(const char* key, std::optional<std::int64_t> missing, std::int64_t least,
                                      std::int64_t most) {
  const std::string* text = find(key, !missing);
  if (!text) return missing.value_or(least);
  const auto value = parse_integer(*text);
  if (!value) {
    fail(key, "is no whole number");
  } else if (*value < least || *value > most) {
    fail(key, format("is not in {} to {}", least, most));
  } else {
    return *value;
  }
  return missing.value_or(least);
}

std::optional<std::int64_t> AttributeReader::optional_integer(const char* key, std::optional<std::int64_t> missing) {
  const std::string* text = find(key, false);
  if (!text) return missing;
  if (trimmed(*text) == "None") return std::nullopt;
  return integer(key);
}

double AttributeReader::number(const char* key, std::optional<double> missing) {
  const std::string* text = find(key, !missing);
  if (!text) return missing.value_or(0);
  const auto value = parse_number(*text);
  if (!value) fail(key, "is no number");
  return value.value_or(missing.value_or(0));
}

float AttributeReader::real(const char* key, std::optional<float> missing) {
  const double value = number(key, missing ? std::optional<double>(*missing) : std::nullopt);
  if (std::isfinite(value) && std::isinf(static_cast<float>(value))) fail(key, "is beyond float32");
  return static_cast<float>(value);
}

bool AttributeReader::flag(const char* key, bool missing) {
  const std::string* text = find(key, false);
  if (!text) return missing;
  std::string word = *text;
  std::ranges::transform(word, word.begin(), lower);
  if (word == "true" || word == "1") return true;
  if (word != "false" && word != "0") fail(key, "is neither True nor False");
  return false;
}

Dims AttributeReader::tuple(const char* key, std::optional<Dims> missing, std::int64_t least) {
  const std::string* text = find(key, !missing);
  if (!text || (missing && trimmed(*text) == "None")) return missing.value_or(Dims{});
  const auto dims = parse_tuple(*text);
  if (!dims) {
    fail(key, "is no tuple of whole numbers");
    return missing.value_or(Dims{});
  }
  for (const std::int64_t dim : *dims) {
    if (dim < least || dim > kInt32Max) fail(key, format("holds {}, which is not in {} to {}", dim, least, kInt32Max));
  }
  return *dims;
}

OptionalDims AttributeReader::optional_tuple(const char* key, std::optional<OptionalDims> missing) {
  const std::string* text = find(key, !missing);
  if (!text || (missing && trimmed(*text) == "None")) return missing.value_or(OptionalDims{});
  const auto dims = parse_optional_tuple(*text);
  if (!dims) {
    fail(key, "is no tuple of whole numbers and None");
    return missing.value_or(OptionalDims{});
  }
  for (const auto& dim : *dims) {
    if (dim && (*dim < kInt32Min || *dim > kInt32Max))
      fail(key, format("holds {}, which is not in {} to {}", *dim, kInt32Min, kInt32Max));
  }
  return *dims;
}

std::vector<double> AttributeReader::doubles(const char* key) {
  const std::string* text = find(key, true);
  const auto numbers = text ? parse_number_tuple(*text) : std::nullopt;
  if (text && !numbers) fail(key, "is no tuple of numbers");
  return numbers.value_or(std::vector<double>());
}

std::vector<float> AttributeReader::reals(const char* key, std::optional<std::vector<float>> missing) {
  if (missing && !find(key, false)) return *missing;
  const std::vector<double> numbers = doubles(key);
  if (!status().ok()) return missing.value_or(std::vector<float>());
  std::vector<float> reals;
  for (const double number : numbers) {
    reals.push_back(static_cast<float>(number));
    if (std::isfinite(number) && std::isinf(reals.back())) fail(key, format("holds {}, which is beyond float32", number));
  }
  return reals;
}

std::size_t AttributeReader::choice(const char* key, std::initializer_list<std::string_view> names,
                                    std::optional<std::size_t> missing) {
  const std::string* text = find(key, !missing);
  if (!text) return missing.value_or(0);
  const auto found = std::find(names.begin(), names.end(), *text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string all;
  for (const std::string_view name : names) all.append(all.empty() ? "" : ", ").append(name);
  fail(key, "is none of " + all);
  return missing.value_or(0);
}

DType AttributeReader::dtype(const char* key, std::optional<DType> missing) {
  const std::string* text = find(key, !missing);
  if (!text || (missing && trimmed(*text) == "None")) return missing.value_or(DType::kFloat32);
  const Result<DType> dtype = parse_dtype(*text);
  if (!dtype.ok()) fail(key, "is no type");
  return dtype.ok() ? *dtype : DType::kFloat32;
}

void AttributeReader::ignore(std::initializer_list<const char*> keys) { read_.insert(keys.begin(), keys.end()); }

void AttributeReader::fail(const char* key, std::string_view why) {
  const auto found = node_.attributes.find(key);
  fail_node(StatusCode::kInvalidArgument, found == node_.attributes.end()
                                              ? format("attribute {} {}", key, why)
                                              : format("attribute {}='{}' {}", key, found->second, why));
}

void AttributeReader::fail_node(StatusCode code, std::string_view why) {
  if (status_.ok()) status_ = Status(code, format("{} '{}': {}", node_.op, node_.name, why));
}

std::vector<std::string> AttributeReader::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : node_.attributes) {
    if (!read_.contains(key) && !is_hint(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace shoal::worker
