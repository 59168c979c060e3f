// ZIP archives: the container of MXNet 2's array files. The top README says why no library reads them.
#pragma once

#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "worker/import/foreign_file.hpp"

namespace shoal::worker {

/// One member, as the central directory describes it. Writers that stream leave sizes out of the local headers.
struct ZipMember {
  std::string name;
  std::uint64_t header_offset = 0;  ///< of the local header
  std::uint64_t data_offset = 0;
  std::uint64_t stored_bytes = 0;  ///< in the archive
  std::uint64_t size_bytes = 0;    ///< of the contents
  std::uint32_t crc = 0;
  bool is_deflated = false;  ///< false: stored as it is
};

/// The members in the directory's order. Each lies within the file and before the directory, and no two overlap. So reading all
/// members takes time in proportion to the size of the file and to what they inflate to.
///   Errors  kDataLoss naming file, offset and field; kUnimplemented for encrypted or split archives and for other compression
///           methods; kInvalidArgument: over the budget
///   Source  PKWARE APPNOTE 6.3, with Zip64
Result<std::vector<ZipMember>> read_zip_directory(const ForeignFile& file, MemoryBudget& budget);

/// The contents of a member, with the CRC checked: a view of the archive, or inflated into new memory.
///   Errors  kDataLoss naming file and member; kInvalidArgument: over the budget
Result<ForeignFile> read_zip_member(const ForeignFile& file, const ZipMember& member, MemoryBudget& budget);

}  // namespace shoal::worker
