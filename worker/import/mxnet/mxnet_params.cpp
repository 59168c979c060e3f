#include "worker/import/mxnet/mxnet_params.hpp"

#include <cstring>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "worker/import/mxnet/mapped_file.hpp"

namespace shoal::worker {
namespace {

constexpr std::uint64_t kListMagic = 0x112;
constexpr std::uint32_t kMagicV1 = 0xF993fac8, kMagicV2 = 0xF993fac9, kMagicV3 = 0xF993faca;
constexpr std::uint32_t kMaxRankV0 = 32;                                               // beyond it the first word is no rank
constexpr std::uint32_t kZip = 0x04034b50, kEmptyZip = 0x06054b50, kNpy = 0x4d554e93;  // first words of other containers
constexpr std::uint64_t kFirstRecord = 24;                                             // magic, reserved word, count
constexpr std::uint64_t kLeastRecordBytes = 12;                                        // magic, storage type, rank 0
constexpr std::uint64_t kLeastNameBytes = 8;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kUInt8, DType::kInt32,
                            DType::kInt8,    DType::kInt64,   DType::kBool,    DType::kInt16, DType::kUInt16,
                            DType::kUInt32,  DType::kUInt64,  DType::kBFloat16};  // by type flag

/// No byte beyond ASCII that is not part of a well-formed UTF-8 sequence, and no NUL.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF5 ? 0 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
    if (length == 0 || lead == 0 || length > text.size() - i) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    const auto second = static_cast<unsigned char>(length > 1 ? text[i + 1] : 0);
    const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
    const bool surrogate_or_beyond = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
    if (overlong || surrogate_or_beyond) return false;
    i += length;
  }
  return true;
}

/// Walks the file; every number is checked before it is used.
class Reader {
 public:
  Reader(std::string file, std::shared_ptr<const MappedFile> mapping)
      : file_(std::move(file)), mapping_(std::move(mapping)), bytes_(mapping_->bytes()) {}

  Result<std::vector<MxnetArray>> read() {
    SHOAL_RETURN_IF_ERROR(header());
    for (MxnetArray& array : arrays_) SHOAL_RETURN_IF_ERROR(record(array));
    SHOAL_RETURN_IF_ERROR(names());
    if (offset_ != bytes_.size()) return damaged("end", "{} bytes follow the last name", bytes_.size() - offset_);
    return std::move(arrays_);
  }

 private:
  template <typename... Args>
  Status damaged(std::string_view field, std::string_view pattern, const Args&... args) const {
    return data_loss("{}: offset {}, {}: {}", file_, offset_, field, format(pattern, args...));
  }
  template <typename... Args>
  Status other_era(std::string_view pattern, const Args&... args) const {
    return unimplemented("{}: offset {}: {}", file_, offset_, format(pattern, args...));
  }

  template <typename T>
  Result<T> number(std::string_view field) {
    if (!fits(offset_, sizeof(T), bytes_.size())) return damaged(field, "the file ends here; it is truncated");
    T value{};
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  Status header() {
    SHOAL_RETURN_IF_ERROR(check_container());
    SHOAL_ASSIGN_OR_RETURN(const auto magic, number<std::uint64_t>("list magic"));
    if (magic != kListMagic) {
      offset_ = 0;
      return damaged("list magic", "{} is not 274; this is no list of MXNet arrays", magic);
    }
    SHOAL_RETURN_IF_ERROR(number<std::uint64_t>("reserved word").status());
    SHOAL_ASSIGN_OR_RETURN(const auto count, number<std::uint64_t>("number of arrays"));
    if (count > (bytes_.size() - offset_) / kLeastRecordBytes) {
      return damaged("number of arrays", "{} arrays do not fit the {} bytes of the file", count, bytes_.size());
    }
    arrays_.resize(count);
    return {};
  }

  Status check_container() const {
    if (bytes_.size() < sizeof(std::uint32_t)) return {};
    std::uint32_t word = 0;
    std::memcpy(&word, bytes_.data(), sizeof(word));
    if (word == kZip || word == kEmptyZip)
      return other_era("this file is of the 2.x era (a ZIP of .npy), which is not supported yet");
    if (word == kNpy) return other_era("this file is of the 2.x era (a single .npy), which is not supported yet");
    return {};
  }

  Status record(MxnetArray& array) {
    SHOAL_ASSIGN_OR_RETURN(const auto magic, number<std::uint32_t>("magic of an array"));
    if (magic != kMagicV2) {
      offset_ -= sizeof(magic);
      if (magic == kMagicV3)
        return other_era("the array is of the V3 era (NumPy shapes, MXNet 1.5 and later), which is not supported yet");
      if (magic == kMagicV1) return other_era("the array is of the V1 era (MXNet 0.11), which is not supported yet");
      const bool first = offset_ == kFirstRecord;  // V0 has no magic: behind a good V2 record a small word is damage
      if (magic <= kMaxRankV0 && first)
        return other_era("the array is of the V0 era (MXNet 0.10 and older), which is not supported yet");
      return damaged("magic of an array", "{} is no version of MXNet's arrays", magic);
    }
    SHOAL_ASSIGN_OR_RETURN(const auto storage, number<std::int32_t>("storage type"));
    if (storage == 1) return other_era("the array is row_sparse; sparse arrays are not supported yet");
    if (storage == 2) return other_era("the array is csr; sparse arrays are not supported yet");
    if (storage != 0) return damaged("storage type", "{} is none", storage);
    SHOAL_ASSIGN_OR_RETURN(const bool holds_data, shape(array.array));
    if (!holds_data) return {};
    SHOAL_RETURN_IF_ERROR(number<std::int32_t>("device type").status());
    SHOAL_RETURN_IF_ERROR(number<std::int32_t>("device id").status());
    return data(array.array);
  }

  /// False for a "none" array, whose record ends with its rank.
  Result<bool> shape(Constant& array) {
    SHOAL_ASSIGN_OR_RETURN(const auto rank, number<std::int32_t>("rank"));
    if (rank == 0 || rank == -1) return false;
    if (rank < 0) return damaged("rank", "{} is no rank", rank);
    if (rank > kMaxRank) return damaged("rank", "{} dimensions; at most {} are supported", rank, kMaxRank);
    std::int64_t dims[kMaxRank];
    for (std::int32_t i = 0; i < rank; ++i) {
      SHOAL_ASSIGN_OR_RETURN(dims[i], number<std::int64_t>("dimension"));
      if (dims[i] < 0) return damaged("dimension", "{} is negative", dims[i]);
    }
    array.shape = Shape(std::span<const std::int64_t>(dims, static_cast<std::size_t>(rank)));
    return true;
  }

  Status data(Constant& array) {
    SHOAL_ASSIGN_OR_RETURN(const auto flag, number<std::int32_t>("type flag"));
    if (flag < 0 || flag >= static_cast<std::int32_t>(std::size(kTypes))) return damaged("type flag", "{} is no type", flag);
    array.dtype = kTypes[flag];
    const std::int64_t count = array.shape.element_count();
    const auto size =
        count < 0 ? std::nullopt : checked_multiply(static_cast<std::uint64_t>(count), dtype_size_bytes(array.dtype));
    if (!size || !fits(offset_, *size, bytes_.size())) {
      return damaged("data", "{} of shape {} does not fit the {} bytes left; the file is truncated or damaged",
                     dtype_name(array.dtype), array.shape.to_string(), bytes_.size() - offset_);
    }
    array.bytes = bytes_.subspan(offset_, *size);
    array.owner = mapping_;
    offset_ += *size;
    return {};
  }

  Status names() {
    SHOAL_ASSIGN_OR_RETURN(const auto count, number<std::uint64_t>("number of names"));
    if (count == 0 && !arrays_.empty()) return damaged("number of names", "the {} arrays have no names", arrays_.size());
    if (count != arrays_.size()) return damaged("number of names", "{} names for {} arrays", count, arrays_.size());
    if (count > (bytes_.size() - offset_) / kLeastNameBytes)
      return damaged("number of names", "{} names do not fit the file", count);
    for (MxnetArray& array : arrays_) {
      SHOAL_ASSIGN_OR_RETURN(const auto length, number<std::uint64_t>("length of a name"));
      if (!fits(offset_, length, bytes_.size()))
        return damaged("length of a name", "{} bytes; the file is truncated or damaged", length);
      array.name.assign(reinterpret_cast<const char*>(bytes_.data() + offset_), length);
      if (!is_utf8(array.name)) return damaged("name", "the name is not UTF-8");
      offset_ += length;
    }
    return {};
  }

  std::string file_;
  std::shared_ptr<const MappedFile> mapping_;
  std::span<const std::byte> bytes_;
  std::uint64_t offset_ = 0;
  std::vector<MxnetArray> arrays_;
};

}  // namespace

Result<std::vector<MxnetArray>> read_mxnet_params(const std::filesystem::path& path) {
  SHOAL_ASSIGN_OR_RETURN(auto mapping, MappedFile::open(path));
  return Reader(path.string(), std::move(mapping)).read();
}

}  // namespace shoal::worker
