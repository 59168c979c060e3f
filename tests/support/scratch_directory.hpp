// A directory that exists as long as a test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace shoal::test {

/// A new directory below the system's temporary directory. The destructor removes it with its content. Its path is short enough
/// for sockets.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "shoal-test-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~ScratchDirectory() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  /// Writes a file and creates the directories above it.
  void write(const std::string& name, const std::string& bytes = "") const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << bytes;
  }
  std::string path(const std::string& name = "") const { return name.empty() ? root_.string() : (root_ / name).string(); }

 private:
  std::filesystem::path root_;
};

}  // namespace shoal::test
