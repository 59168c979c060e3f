// Where the programs lie that others start.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace shoal {

/// The directory of the running program.
inline std::filesystem::path program_directory() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

/// A program that was built or installed together with a program or a library in `directory`: it lies beside it, or in
/// ../libexec/shoal, where the package installs it (../../ for a library in lib/TRIPLET). Empty if there is none.
inline std::filesystem::path helper_program(const char* name, const std::filesystem::path& directory) {
  const bool is_in_triplet = directory.parent_path().filename() == "lib";
  for (const char* const place : {".", "../libexec/shoal", is_in_triplet ? "../../libexec/shoal" : "."}) {
    const std::filesystem::path file = directory / place / name;
    if (!directory.empty() && ::access(file.c_str(), X_OK) == 0) return file.lexically_normal();
  }
  return {};
}

}  // namespace shoal
