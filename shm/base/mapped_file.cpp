#include "shm/base/mapped_file.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "shm/base/errors.hpp"
#include "shm/base/regular_file.hpp"

namespace shoal {

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  SHOAL_ASSIGN_OR_RETURN(const RegularFile opened, open_regular_file(path));
  const std::shared_ptr<MappedFile> file(new MappedFile);
  if (opened.size_bytes == 0) return std::shared_ptr<const MappedFile>(file);
  void* const start = ::mmap(nullptr, opened.size_bytes, PROT_READ, MAP_PRIVATE, opened.fd.get(), 0);
  if (start == MAP_FAILED) return status_from_errno("map", path.string(), errno);
  file->bytes_ = {static_cast<const std::byte*>(start), opened.size_bytes};
  return std::shared_ptr<const MappedFile>(file);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace shoal
