#include "shm/base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"

namespace shoal {

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return status_from_errno("open", path.string(), errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return status_from_errno("look at", path.string(), errno);
  if (!S_ISREG(info.st_mode)) return invalid_argument("{} is no file", path.string());
  const std::shared_ptr<MappedFile> file(new MappedFile);
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return std::shared_ptr<const MappedFile>(file);
  void* const start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (start == MAP_FAILED) return status_from_errno("map", path.string(), errno);
  file->bytes_ = {static_cast<const std::byte*>(start), size};
  return std::shared_ptr<const MappedFile>(file);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace shoal
