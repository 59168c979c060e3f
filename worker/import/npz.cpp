#include "worker/import/npz.hpp"

#include <cstring>
#include <map>
#include <set>

#include "shm/tensor/npy.hpp"
#include "worker/import/sparse_array.hpp"
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
struct SparseFolder {
  Storage storage = Storage::kCsr;
  std::uint64_t offset = 0;                              ///< of the member that says it
  std::map<std::string, Constant, std::less<>> members;  ///< by name: "data", "shape", "indices", "indptr"
};
using SparseFolders = std::map<std::string, SparseFolder, std::less<>>;

Result<SparseFolders> find_sparse(const ForeignFile& file, const std::vector<ZipMember>& members, MemoryBudget& budget) {
  std::set<std::string_view> names;
  SparseFolders folders;
  SHOAL_RETURN_IF_ERROR(budget.take(file, "the names of the archive's members", members.size(), 64));
  for (const ZipMember& member : members) names.insert(member.name);
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kSparseFormat)) continue;
    const std::string key = member.name.substr(0, member.name.size() - kSparseFormat.size());
    if (!names.contains(key + std::string(kSparseData))) continue;
    SHOAL_ASSIGN_OR_RETURN(const ForeignFile contents, read_zip_member(file, member, budget));
    const std::string_view text(reinterpret_cast<const char*>(contents.bytes.data()), contents.bytes.size());
    for (const Storage storage : {Storage::kRowSparse, Storage::kCsr}) {
      if (!text.starts_with(storage_name(storage))) continue;
      SHOAL_RETURN_IF_ERROR(budget.take(file, "the parts of a sparse array", 1, 2 * sizeof(SparseFolder) + 5 * sizeof(Constant)));
      folders[key] = {storage, member.header_offset, {}};
    }
  }
  return folders;
}

/// The folder of sparse arrays in which the member lies; null if it lies in none.
SparseFolder* folder_of(SparseFolders& folders, std::string_view member) {
  const auto slash = member.rfind('/');
  const auto found = slash == std::string_view::npos ? folders.end() : folders.find(member.substr(0, slash));
  return found == folders.end() ? nullptr : &found->second;
}

/// The numbers of the member called shape.
Result<Shape> sparse_shape(const ForeignFile& file, std::uint64_t offset, const std::string& key, const Constant& array) {
  const std::size_t size = dtype_size_bytes(array.dtype);
  const bool is_known = (array.dtype == DType::kInt64 || array.dtype == DType::kInt32) && array.shape.rank() == 1 &&
                        array.shape[0] <= kMaxRank && array.bytes.size() == static_cast<std::size_t>(array.shape[0]) * size;
  if (!is_known)
    return data_loss("{}: offset {}, sparse array '{}': shape: it is no list of at most {} sizes", file.name, offset, key,
                     kMaxRank);
  Dims dims;
  for (std::size_t i = 0; i * size < array.bytes.size(); ++i) {
    std::int64_t dim = 0;  // both types are little-endian; a negative int32 becomes a size that no data fits
    std::memcpy(&dim, array.bytes.data() + i * size, size);
    if (dim < 0) return data_loss("{}: offset {}, sparse array '{}': shape: size {} is {}", file.name, offset, key, i, dim);
    dims.push_back(dim);
  }
  return Shape(dims);
}

Result<NamedArray> read_sparse(const ForeignFile& file, const std::string& key, const SparseFolder& folder,
                               MemoryBudget& budget) {
  NamedArray array{key, {}};
  SHOAL_ASSIGN_OR_RETURN(array.sparse, make_parts(file, folder.storage, budget));
  SparseParts& parts = *array.sparse;
  Constant shape;
  const std::pair<std::string_view, Constant*> wanted[] = {
      {"shape", &shape}, {"data", &parts.values}, {"indices", &parts.indices}, {"indptr", &parts.indptr}};
  for (const auto& [name, to] : wanted) {
    if (name == "indptr" && folder.storage == Storage::kRowSparse) continue;
    const auto found = folder.members.find(name);
    if (found == folder.members.end())
      return data_loss("{}: offset {}, sparse array '{}': {}: there is no such member", file.name, folder.offset, key, name);
    *to = found->second;
  }
  array.array.dtype = parts.values.dtype;
  SHOAL_ASSIGN_OR_RETURN(array.array.shape, sparse_shape(file, folder.offset, key, shape));
  SHOAL_RETURN_IF_ERROR(check_sparse(file, folder.offset, array, budget));
  return array;
}

}  // namespace

Result<std::vector<NamedArray>> parse_npz(const ForeignFile& file, MemoryBudget& budget) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<ZipMember> members, read_zip_directory(file, budget));
  SHOAL_ASSIGN_OR_RETURN(SparseFolders folders, find_sparse(file, members, budget));
  SHOAL_RETURN_IF_ERROR(budget.take(file, "the index of the arrays", members.size(), sizeof(NamedArray)));
  std::vector<NamedArray> arrays;
  arrays.reserve(members.size());
  for (const ZipMember& member : members) {
    if (member.name.ends_with("/") && member.size_bytes == 0) continue;  // a folder
    if (!member.name.ends_with(kNpySuffix)) {
      return data_loss("{}: offset {}, member '{}': name: it is no .npy file, and this no archive of arrays", file.name,
                       member.header_offset, member.name);
    }
    SparseFolder* const folder = folder_of(folders, member.name);
    if (folder != nullptr && member.name.ends_with(kSparseFormat)) continue;
    SHOAL_ASSIGN_OR_RETURN(const ForeignFile contents, read_zip_member(file, member, budget));
    SHOAL_ASSIGN_OR_RETURN(Constant array, read_array(contents, budget));
    if (folder != nullptr) {
      const std::size_t begin = member.name.rfind('/') + 1;
      folder->members[member.name.substr(begin, member.name.size() - begin - kNpySuffix.size())] = std::move(array);
      continue;
    }
    arrays.push_back({member.name.substr(0, member.name.size() - kNpySuffix.size()), std::move(array)});
  }
  for (const auto& [key, folder] : folders) {
    SHOAL_ASSIGN_OR_RETURN(NamedArray array, read_sparse(file, key, folder, budget));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

Result<std::vector<NamedArray>> parse_single_npy(const ForeignFile& file, MemoryBudget& budget) {
  SHOAL_ASSIGN_OR_RETURN(Constant array, read_array(file, budget));
  return std::vector<NamedArray>{{"", std::move(array)}};
}

}  // namespace shoal::worker
