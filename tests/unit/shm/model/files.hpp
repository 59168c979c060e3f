// A directory of small files that lives as long as a test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace shoal::test {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "shoal-model-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~ScratchDirectory() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  void write(const std::string& name, const std::string& text = "") const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::string path(const std::string& name = "") const { return name.empty() ? root_.string() : (root_ / name).string(); }

 private:
  std::filesystem::path root_;
};

/// True when each word stands in the text: for messages, whose wording is free and whose facts are not.
inline testing::AssertionResult says(const std::string& text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text.find(word) == std::string::npos) return testing::AssertionFailure() << "'" << word << "' is not in: " << text;
  }
  return testing::AssertionSuccess();
}

}  // namespace shoal::test
