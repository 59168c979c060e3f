#include "shm/base/text_file.hpp"

#include <algorithm>
#include <span>

#include "shm/base/errors.hpp"
#include "shm/base/regular_file.hpp"

namespace shoal {

Result<std::string> read_text_file(const std::filesystem::path& path) {
  SHOAL_ASSIGN_OR_RETURN(const RegularFile file, open_regular_file(path));
  std::string text;
  // The file may grow during the loop.
  for (std::size_t room = std::min(file.size_bytes, kLargestTextFile) + 1;; room = text.size()) {
    const std::size_t before = text.size();
    text.resize(before + room);
    const auto rest = std::as_writable_bytes(std::span(text)).subspan(before);
    SHOAL_ASSIGN_OR_RETURN(const std::size_t size, read_fully(file.fd.get(), rest, path.string()));
    text.resize(before + size);
    if (text.size() > kLargestTextFile)
      return invalid_argument("{} has more than {} MiB, which is too large for a file of this kind", path.string(),
                              kLargestTextFile >> 20);
    if (size < room) return text;
  }
}

}  // namespace shoal
