#include "worker/import/mxnet/mxnet_params.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "worker/import/mxnet/mxnet_types.hpp"
#include "worker/import/npz.hpp"
#include "worker/import/sparse_array.hpp"

namespace shoal::worker {
namespace {

constexpr std::uint64_t kListMagic = 0x112;
constexpr std::uint32_t kMagicV1 = 0xF993fac8, kMagicV2 = 0xF993fac9, kMagicV3 = 0xF993faca;
constexpr std::uint32_t kMaxRankV0 = 32;                                               // a larger first word is not a rank
constexpr std::uint32_t kZip = 0x04034b50, kEmptyZip = 0x06054b50, kNpy = 0x4d554e93;  // first words of other containers
constexpr std::uint64_t kLeastRecordBytes = 4;                                         // a V0 record of rank 0
constexpr std::uint64_t kLeastNameBytes = 8;

constexpr std::string_view kDamage = "the file is truncated or damaged";

/// The format of a record. V0 has no magic.
enum class RecordVersion { kV0, kV1, kV2, kV3 };
/// Reads a list of arrays. It checks every number before it uses it.
class ListReader {
 public:
  ListReader(const ForeignFile& file, MemoryBudget& budget) : file_(file), budget_(budget), fields_(file) {}

  Result<std::vector<NamedArray>> read() {
    SHOAL_RETURN_IF_ERROR(header());
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      fields_.enter(format("array {} of {}", i, arrays_.size()));
      SHOAL_RETURN_IF_ERROR(record(i));
    }
    fields_.enter("");
    SHOAL_RETURN_IF_ERROR(names());
    if (fields_.left() > 0) return fields_.damaged("end", "{} bytes follow the last name", fields_.left());
    for (const auto& [array, offset] : sparse_) SHOAL_RETURN_IF_ERROR(check_sparse(file_, offset, arrays_[array], budget_));
    return std::move(arrays_);
  }

 private:
  Status header() {
    SHOAL_ASSIGN_OR_RETURN(const auto magic, fields_.number<std::uint64_t>("list magic"));
    if (magic != kListMagic) {
      return fields_.damaged_at(0, "list magic", "{} is not {}; this is no list of MXNet arrays", magic, kListMagic);
    }
    SHOAL_RETURN_IF_ERROR(fields_.number<std::uint64_t>("reserved word").status());
    const std::uint64_t at = fields_.offset();
    SHOAL_ASSIGN_OR_RETURN(const auto count, fields_.number<std::uint64_t>("number of arrays"));
    if (count > fields_.left() / kLeastRecordBytes) {
      return fields_.damaged_at(at, "number of arrays", "{} arrays do not fit the {} bytes that are left; {}", count,
                                fields_.left(), kDamage);
    }
    SHOAL_RETURN_IF_ERROR(budget_.take(file_, "the index of the arrays", count, sizeof(NamedArray)));
    arrays_.resize(count);
    return {};
  }

  Result<RecordVersion> version() {
    const std::uint64_t at = fields_.offset();
    SHOAL_ASSIGN_OR_RETURN(const auto magic, fields_.number<std::uint32_t>("magic of an array"));
    if (magic == kMagicV1) return RecordVersion::kV1;
    if (magic == kMagicV2) return RecordVersion::kV2;
    if (magic == kMagicV3) return RecordVersion::kV3;
    if (magic > kMaxRankV0) {
      return fields_.damaged_at(at, "magic of an array", "{} is no version of MXNet's arrays, and no rank of the oldest", magic);
    }
    fields_.seek(at);
    return RecordVersion::kV0;
  }

  Status record(std::size_t index) {
    const std::uint64_t start = fields_.offset();
    Constant& array = arrays_[index].array;
    SHOAL_ASSIGN_OR_RETURN(const RecordVersion version, this->version());
    SHOAL_ASSIGN_OR_RETURN(const Storage storage, this->storage(version));
    Shape stored;
    if (storage != Storage::kDense) SHOAL_RETURN_IF_ERROR(shape(version, stored).status());
    SHOAL_ASSIGN_OR_RETURN(const bool holds_data, shape(version, array.shape));
    if (!holds_data) return {};
    SHOAL_RETURN_IF_ERROR(fields_.number<std::int32_t>("device type").status());  // of the device it was saved from; not needed
    SHOAL_RETURN_IF_ERROR(fields_.number<std::int32_t>("device id").status());
    SHOAL_ASSIGN_OR_RETURN(const DType dtype, type_flag());
    array.dtype = dtype;
    if (storage == Storage::kDense) return read_data(array);
    SHOAL_ASSIGN_OR_RETURN(arrays_[index].sparse, make_parts(file_, storage, budget_));
    sparse_.emplace_back(index, start);
    SparseParts& parts = *arrays_[index].sparse;
    parts.values.dtype = dtype;
    parts.values.shape = stored;
    std::array<Constant*, 2> both{&parts.indptr, &parts.indices};
    const auto numbers = std::span(both).subspan(storage == Storage::kCsr ? 0 : 1);  // those of csr stand in this order
    for (Constant* const each : numbers) {
      SHOAL_ASSIGN_OR_RETURN(each->dtype, type_flag());
      SHOAL_RETURN_IF_ERROR(shape(version, each->shape).status());
    }
    SHOAL_RETURN_IF_ERROR(read_data(parts.values));
    for (Constant* const each : numbers) SHOAL_RETURN_IF_ERROR(read_data(*each));
    return {};
  }

  Result<Storage> storage(RecordVersion version) {
    if (version == RecordVersion::kV0 || version == RecordVersion::kV1) return Storage::kDense;
    const std::uint64_t at = fields_.offset();
    SHOAL_ASSIGN_OR_RETURN(const auto storage, fields_.number<std::int32_t>("storage type"));
    const bool known = storage >= 0 && storage <= (version == RecordVersion::kV3 ? 0 : 2);
    if (!known) return fields_.damaged_at(at, "storage type", "{} is none of this version of arrays", storage);
    return static_cast<Storage>(storage);
  }

  /// Returns false for a "none" array; its record ends after the shape.
  Result<bool> shape(RecordVersion version, Shape& shape) {
    const bool numpy = version == RecordVersion::kV3, is_short = version == RecordVersion::kV0;
    const std::uint64_t at = fields_.offset();
    SHOAL_ASSIGN_OR_RETURN(const auto rank, fields_.number<std::int32_t>("rank"));
    if (rank == -1 || (rank == 0 && !numpy)) return false;
    if (rank < 0) return fields_.damaged_at(at, "rank", "{} is no rank", rank);
    if (rank > kMaxRank) return fields_.damaged_at(at, "rank", "{} dimensions; at most {} are supported", rank, kMaxRank);
    std::int64_t dims[kMaxRank] = {};
    bool holds_data = true;
    for (std::int32_t i = 0; i < rank; ++i) {
      const std::uint64_t dim_at = fields_.offset();
      SHOAL_ASSIGN_OR_RETURN(dims[i], dimension(is_short));
      if (numpy && dims[i] == -1) holds_data = false;
      if (dims[i] < (numpy ? -1 : 0)) return fields_.damaged_at(dim_at, "dimension", "{} is negative", dims[i]);
    }
    shape = Shape(std::span<const std::int64_t>(dims, static_cast<std::size_t>(rank)));
    return holds_data;
  }

  Result<std::int64_t> dimension(bool is_short) {
    if (!is_short) return fields_.number<std::int64_t>("dimension");
    SHOAL_ASSIGN_OR_RETURN(const auto dim, fields_.number<std::uint32_t>("dimension"));
    return std::int64_t{dim};
  }

  Result<DType> type_flag() {
    const std::uint64_t at = fields_.offset();
    SHOAL_ASSIGN_OR_RETURN(const auto flag, fields_.number<std::int32_t>("type flag"));
    const auto dtype = dtype_of_flag(flag);
    if (!dtype) return fields_.damaged_at(at, "type flag", "{} is no type", flag);
    return *dtype;
  }

  Result<std::span<const std::byte>> data(DType dtype, const Shape& shape) {
    const std::int64_t count = shape.element_count();
    const auto size = count < 0 ? std::nullopt : checked_multiply(static_cast<std::uint64_t>(count), dtype_size_bytes(dtype));
    if (!size || *size > fields_.left()) {
      return fields_.damaged("data", "{} of shape {} does not fit the {} bytes left; {}", dtype_name(dtype), shape.to_string(),
                             fields_.left(), kDamage);
    }
    return fields_.take("data", *size);
  }

  Status read_data(Constant& array) {
    SHOAL_ASSIGN_OR_RETURN(array.bytes, data(array.dtype, array.shape));
    array.owner = file_.owner;
    return {};
  }

  Status names() {
    const std::uint64_t at = fields_.offset();
    SHOAL_ASSIGN_OR_RETURN(const auto count, fields_.number<std::uint64_t>("number of names"));
    if (count == 0) return {};
    if (count != arrays_.size())
      return fields_.damaged_at(at, "number of names", "{} names for {} arrays", count, arrays_.size());
    if (count > fields_.left() / kLeastNameBytes)
      return fields_.damaged_at(at, "number of names", "{} names do not fit the {} bytes that are left; {}", count,
                                fields_.left(), kDamage);
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      fields_.enter(format("name {}", i));
      const std::uint64_t length_at = fields_.offset();
      SHOAL_ASSIGN_OR_RETURN(const auto length, fields_.number<std::uint64_t>("length of a name"));
      if (length > fields_.left())
        return fields_.damaged_at(length_at, "length of a name", "{} bytes; {} are left; {}", length, fields_.left(), kDamage);
      SHOAL_ASSIGN_OR_RETURN(const auto name, fields_.text("name", length));
      SHOAL_RETURN_IF_ERROR(budget_.take(file_, "the names of the arrays", name.size() + 1));
      arrays_[i].name = name;
    }
    fields_.enter("");
    return {};
  }

  const ForeignFile& file_;
  MemoryBudget& budget_;
  FieldReader fields_;
  std::vector<NamedArray> arrays_;
  /// The sparse ones, and where they begin. Errors need their names, which follow all records.
  std::vector<std::pair<std::size_t, std::uint64_t>> sparse_;
};

}  // namespace

Result<std::vector<NamedArray>> read_mxnet_params(const std::filesystem::path& path, const ImportLimits& limits) {
  SHOAL_ASSIGN_OR_RETURN(const ForeignFile file, ForeignFile::open(path));
  MemoryBudget budget(limits);
  return parse_mxnet_params(file, budget);
}

Result<std::vector<NamedArray>> parse_mxnet_params(const ForeignFile& file, MemoryBudget& budget) {
  std::uint32_t word = 0;
  if (file.bytes.size() >= sizeof(word)) std::memcpy(&word, file.bytes.data(), sizeof(word));
  if (word == kZip || word == kEmptyZip) return parse_npz(file, budget);
  if (word == kNpy) return parse_single_npy(file, budget);
  return ListReader(file, budget).read();
}

}  // namespace shoal::worker
