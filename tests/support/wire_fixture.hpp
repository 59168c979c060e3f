// The messages of a release as bytes: tests/fixtures/wire_*.txt, which says how it is written.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::test {

/// The releases whose messages are kept, as their files are called. The last one is what this build sends.
inline constexpr std::array<const char*, 1> kReleases = {"0_2_0"};

/// Frames; a control packet is one.
using RawMessage = std::vector<std::string>;

/// Replaces bytes, which must be there.
template <typename T>
void patch(std::string& bytes, std::size_t offset, const T& value) {
  ASSERT_LE(offset + sizeof value, bytes.size());
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}
/// Zeros beyond the end.
template <typename T>
T value_at(std::string_view bytes, std::size_t offset) {
  T value{};
  if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from << " is not in " << text;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

/// Reads the whole file when it is made.
///   Threads  immutable
class WireFixture {
 public:
  explicit WireFixture(const std::string& release) {
    const char* const source = std::getenv("SHOAL_SOURCE_DIR");
    const std::filesystem::path path =
        std::filesystem::path(source ? source : ".") / "tests" / "fixtures" / ("wire_" + release + ".txt");
    std::ifstream file(path);
    EXPECT_TRUE(file) << path << " cannot be read: ctest sets SHOAL_SOURCE_DIR";
    RawMessage* message = nullptr;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with('[')) {
        message = &messages_[line.substr(1, line.find(']') - 1)];
        EXPECT_TRUE(message->empty()) << line << " is there twice";
        message->emplace_back();
      } else if (!line.empty() && !line.starts_with('#')) {
        if (message) add(line, *message);
      }
    }
  }

  /// Fails the test if there is none.
  RawMessage message(const std::string& name) const {
    const auto found = messages_.find(name);
    EXPECT_NE(found, messages_.end()) << "no message " << name;
    return found == messages_.end() ? RawMessage(3) : found->second;
  }
  std::string packet(const std::string& name) const { return message(name).at(0); }
  const std::map<std::string, RawMessage>& all() const { return messages_; }

 private:
  static void add(const std::string& line, RawMessage& message) {
    if (line == "--") {
      message.emplace_back();
    } else if (line.starts_with('|')) {
      message.back() += line.substr(1);
    } else {
      std::istringstream words(line.substr(0, line.find('#')));
      for (std::string word; words >> word;) {
        EXPECT_TRUE(word.size() == 2 && word.find_first_not_of("0123456789abcdef") == word.npos) << line;
        message.back() += static_cast<char>(std::strtoul(word.c_str(), nullptr, 16));
      }
    }
  }

  std::map<std::string, RawMessage> messages_;
};

}  // namespace shoal::test
