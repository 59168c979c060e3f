#include "shm/log/log_line.hpp"

#include <nlohmann/json.hpp>
#include <vector>

namespace shoal {
namespace {

struct Field {
  std::string key;  // empty for the event
  std::string value;
  bool is_number = false;
  bool is_quoted = false;
};

/// Removes the next word from the pattern and returns it. A word ends at a space outside quotes.
std::string_view take_word(std::string_view& pattern) {
  bool in_quotes = false;
  std::size_t end = 0;
  for (; end < pattern.size() && (in_quotes || pattern[end] != ' '); ++end) in_quotes ^= pattern[end] == '"';
  const std::string_view word = pattern.substr(0, end);
  pattern.remove_prefix(std::min(end + 1, pattern.size()));
  return word;
}

Field read_field(std::string_view word, std::span<const LogArgument>& arguments) {
  Field field;
  if (const auto equals = word.find('='); equals != std::string_view::npos) {
    field.key = word.substr(0, equals);
    word.remove_prefix(equals + 1);
  }
  if (word.size() >= 2 && word.front() == '"' && word.back() == '"') {
    field.is_quoted = true;
    word = word.substr(1, word.size() - 2);
  }
  field.is_number = word == "{}" && !field.is_quoted && !arguments.empty() && arguments.front().is_number;
  for (auto hole = word.find("{}"); hole != std::string_view::npos && !arguments.empty(); hole = word.find("{}")) {
    field.value.append(word.substr(0, hole)).append(arguments.front().text);
    arguments = arguments.subspan(1);
    word.remove_prefix(hole + 2);
  }
  field.value += word;
  return field;
}

bool is_plain(std::string_view text) {
  for (const unsigned char c : text) {
    if (c <= ' ' || c == '"' || c == '\\' || c == '=' || c == 0x7f) return false;
  }
  return !text.empty();
}

void append_quoted(std::string& line, std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  line += '"';
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += static_cast<char>(c);
    } else if (c < ' ' || c == 0x7f) {
      line += {'\\', 'x', kDigits[c >> 4], kDigits[c & 15]};
    } else {
      line += static_cast<char>(c);
    }
  }
  line += '"';
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string log_line(LogFormat format, std::string_view pattern, std::span<const LogArgument> arguments) {
  std::string line;
  while (!pattern.empty()) {
    const Field field = read_field(take_word(pattern), arguments);
    if (format == LogFormat::kJson) {
      if (!line.empty()) line += ',';
      line += json_text(field.key.empty() ? "event" : field.key) + ':';
      line += field.is_number ? field.value : json_text(field.value);
      continue;
    }
    if (!line.empty()) line += ' ';
    if (!field.key.empty()) line += field.key + '=';
    field.is_quoted || !is_plain(field.value) ? append_quoted(line, field.value) : void(line += field.value);
  }
  return line;
}

}  // namespace shoal
