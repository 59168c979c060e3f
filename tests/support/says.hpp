// Checks of messages: the facts must be there, the wording is free.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace shoal::test {

/// True when the text contains each of the words.
inline ::testing::AssertionResult says(const std::string& text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text.find(word) == std::string::npos) return ::testing::AssertionFailure() << "'" << word << "' is not in: " << text;
  }
  return ::testing::AssertionSuccess();
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace shoal::test
