#include "worker/import/npz.hpp"

#include <set>

#include "shm/tensor/npy.hpp"
#include "worker/import/zip_archive.hpp"

namespace shoal::worker {
namespace {

constexpr std::string_view kNpySuffix = ".npy";
constexpr std::string_view kSparseFormat = "/format.npy", kSparseData = "/data.npy";

Result<Constant> read_array(const ForeignFile& file, MemoryBudget& budget) {
  SHOAL_ASSIGN_OR_RETURN(const NpyArray npy, parse_npy(file.bytes, file.name));
  if (!npy.fortran_order || npy.shape.rank() < 2) return Constant{npy.dtype, npy.shape, npy.data, file.owner};
  SHOAL_RETURN_IF_ERROR(budget.take(file, "an array in row-major order", npy.data.size()));
  SHOAL_ASSIGN_OR_RETURN(const Tensor tensor, to_row_major(npy));
  return Constant{npy.dtype, npy.shape, tensor.view().bytes(), tensor.owner()};
}

/// A sparse array is a folder of several members; the one called format holds the storage type's name as bare text.
Status check_dense(const ForeignFile& file, const std::vector<ZipMember>& members, MemoryBudget& budget) {
  std::set<std::string_view> names;
  SHOAL_RETURN_IF_ERROR(budget.take(file, "the names of the archive's members", members.size(), 64));
  for (const ZipMember& member : members) names.insert(member.name);
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kSparseFormat)) continue;
    const std::string key = member.name.substr(0, member.name.size() - kSparseFormat.size());
    if (!names.contains(key + std::string(kSparseData))) continue;
    SHOAL_ASSIGN_OR_RETURN(const ForeignFile contents, read_zip_member(file, member, budget));
    const std::string_view text(reinterpret_cast<const char*>(contents.bytes.data()), contents.bytes.size());
    for (const std::string_view storage : {"row_sparse", "csr"}) {
      if (text.starts_with(storage)) {
        return unimplemented("{}: array '{}' has storage type {}; sparse arrays are not supported", file.name, key, storage);
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<NamedArray>> parse_npz(const ForeignFile& file, MemoryBudget& budget) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<ZipMember> members, read_zip_directory(file, budget));
  SHOAL_RETURN_IF_ERROR(check_dense(file, members, budget));
  SHOAL_RETURN_IF_ERROR(budget.take(file, "the index of the arrays", members.size(), sizeof(NamedArray)));
  std::vector<NamedArray> arrays;
  arrays.reserve(members.size());
  for (const ZipMember& member : members) {
    if (member.name.ends_with("/") && member.size_bytes == 0) continue;  // a folder
    if (!member.name.ends_with(kNpySuffix)) {
      return data_loss("{}: offset {}, member '{}': name: it is no .npy file, and this no archive of arrays", file.name,
                       member.header_offset, member.name);
    }
    SHOAL_ASSIGN_OR_RETURN(const ForeignFile contents, read_zip_member(file, member, budget));
    SHOAL_ASSIGN_OR_RETURN(Constant array, read_array(contents, budget));
    arrays.push_back({member.name.substr(0, member.name.size() - kNpySuffix.size()), std::move(array)});
  }
  return arrays;
}

Result<std::vector<NamedArray>> parse_single_npy(const ForeignFile& file, MemoryBudget& budget) {
  SHOAL_ASSIGN_OR_RETURN(Constant array, read_array(file, budget));
  return std::vector<NamedArray>{{"", std::move(array)}};
}

}  // namespace shoal::worker
