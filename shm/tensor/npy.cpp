#include "shm/tensor/npy.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"
#include "shm/base/regular_file.hpp"

namespace shoal {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr std::size_t kVersionEnd = 8;  // magic, major and minor version
constexpr std::size_t kMaxHeader = 1 << 20;

struct DescrRow {
  std::string_view descr;
  DType dtype;
};
constexpr DescrRow kDescrs[] = {
    {"<f4", DType::kFloat32},  {"<f8", DType::kFloat64}, {"<f2", DType::kFloat16}, {"<V2", DType::kBFloat16},
    {"<b2", DType::kBFloat16}, {"|u1", DType::kUInt8},   {"|i1", DType::kInt8},    {"<i2", DType::kInt16},
    {"<u2", DType::kUInt16},   {"<i4", DType::kInt32},   {"<u4", DType::kUInt32},  {"<i8", DType::kInt64},
    {"<u8", DType::kUInt64},   {"|b1", DType::kBool},
};

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

/// Reads the header's Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::size_t offset, std::string_view file)
      : rest_(text), end_offset_(offset + text.size()), file_(file) {}

  Result<NpyArray> parse() {
    if (!accept("{")) return damaged("header", "does not begin with '{'");
    while (!accept("}")) {
      const std::optional<std::string_view> key = quoted();
      if (!key || !accept(":")) return damaged("header", "is not a dictionary of NumPy");
      SHOAL_RETURN_IF_ERROR(parse_field(*key));
      accept(",");
    }
    if (array_.dtype == DType::kInvalid) return damaged("descr", "is missing");
    if (!has_order_) return damaged("fortran_order", "is missing");
    if (!has_shape_) return damaged("shape", "is missing");
    return array_;
  }

 private:
  std::size_t offset() const { return end_offset_ - rest_.size(); }
  Status damaged(std::string_view field, std::string_view what) const {
    return data_loss("{}: offset {}, {} {}", file_, offset(), field, what);
  }

  Status parse_field(std::string_view key) {
    if (key == "descr") return parse_descr();
    if (key == "fortran_order") return parse_order();
    if (key == "shape") return parse_shape();
    return damaged("header", format("has an unknown field '{}'", key));
  }

  Status parse_descr() {
    const std::size_t at = offset();
    const std::optional<std::string_view> descr = quoted();
    if (!descr)
      return unimplemented("{}: offset {}, descr is not a plain type; records and objects are not supported", file_, at);
    if (descr->starts_with(">")) {
      return unimplemented("{}: offset {}, descr '{}' has big-endian byte order, which is not supported", file_, at, *descr);
    }
    const auto row =
        std::find_if(std::begin(kDescrs), std::end(kDescrs), [&](const DescrRow& r) { return same(r.descr, *descr); });
    if (row == std::end(kDescrs)) {
      return unimplemented("{}: offset {}, descr '{}' is not supported; little-endian numbers and bool are", file_, at, *descr);
    }
    array_.dtype = row->dtype;
    return {};
  }

  /// One-byte types have '|' as byte order; some programs write '<' or '='.
  static bool same(std::string_view known, std::string_view given) {
    return given == known ||
           (known[0] == '|' && given.size() == 3 && (given[0] == '<' || given[0] == '=') && given.substr(1) == known.substr(1));
  }

  Status parse_order() {
    has_order_ = true;
    array_.fortran_order = accept("True");
    return array_.fortran_order || accept("False") ? Status() : damaged("fortran_order", "is neither True nor False");
  }

  Status parse_shape() {
    has_shape_ = true;
    std::array<std::int64_t, kMaxRank> dims{};
    std::size_t rank = 0;
    if (!accept("(")) return damaged("shape", "is not a tuple");
    while (!accept(")")) {
      if (rank == dims.size()) return damaged("shape", format("has more than {} dimensions", kMaxRank));
      skip_spaces();
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), dims[rank]);
      if (error != std::errc() || dims[rank] < 0) return damaged("shape", "has an element that is not a dimension");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      if (rest_.starts_with("L")) rest_.remove_prefix(1);  // Python 2 writes long integers so
      ++rank;
      accept(",");
    }
    array_.shape = Shape(std::span<const std::int64_t>(dims.data(), rank));
    return {};
  }

  void skip_spaces() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool accept(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  std::optional<std::string_view> quoted() {
    skip_spaces();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::string_view rest_;
  const std::size_t end_offset_;  // end of the header in the file
  const std::string_view file_;
  NpyArray array_;
  bool has_order_ = false, has_shape_ = false;
};

/// Copies src, whose first dimension changes fastest, into dst, which is row-major.
void copy_columns(const NpyArray& src, TensorView& dst) {
  const std::size_t size = dtype_size_bytes(src.dtype);
  std::array<std::int64_t, kMaxRank> index{};
  for (std::int64_t i = 0, count = src.shape.element_count(); i < count; ++i) {
    std::int64_t from = 0;
    for (int axis = src.shape.rank(); axis-- > 0;) from = from * src.shape[axis] + index[static_cast<std::size_t>(axis)];
    std::memcpy(dst.data + static_cast<std::size_t>(i) * size, src.data.data() + static_cast<std::size_t>(from) * size, size);
    for (int axis = src.shape.rank(); axis-- > 0;) {
      if (++index[static_cast<std::size_t>(axis)] < src.shape[axis]) break;
      index[static_cast<std::size_t>(axis)] = 0;
    }
  }
}

/// Reads a whole file. It is not mapped, because a file that shrinks while it is mapped would end the process.
Result<std::vector<std::byte>> read_whole(const std::string& name) try {
  SHOAL_ASSIGN_OR_RETURN(const RegularFile file, open_regular_file(name));
  std::vector<std::byte> bytes(file.size_bytes);
  SHOAL_ASSIGN_OR_RETURN(const std::size_t size, read_fully(file.fd.get(), bytes, name));
  bytes.resize(size);
  return bytes;
} catch (const std::bad_alloc&) {  // a sparse file may be of any size
  return out_of_memory(name);
}

std::string make_header(const TensorView& tensor) {
  const auto row =
      std::find_if(std::begin(kDescrs), std::end(kDescrs), [&](const DescrRow& r) { return r.dtype == tensor.dtype; });
  std::string dims;
  for (const std::int64_t dim : tensor.shape.dims()) dims += std::to_string(dim) + ", ";
  if (tensor.shape.rank() > 1) dims.resize(dims.size() - 2);
  std::string text = format("{'descr': '{}', 'fortran_order': False, 'shape': ({}), }", row->descr, dims);
  constexpr std::size_t kAlignment = 64, kBefore = 10;  // magic, version, length
  text.append((kAlignment - (kBefore + text.size() + 1) % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace

Result<NpyArray> parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) {
    const bool cut = text.size() < kMagic.size() && kMagic.starts_with(text);
    return data_loss("{}: offset 0, magic {}", name, cut ? "is cut: the file is truncated" : "is not that of a .npy file");
  }
  if (text.size() < kVersionEnd)
    return data_loss("{}: offset {}, version is missing: the file is truncated", name, kMagic.size());
  const int major = text[kMagic.size()];
  if (major != 1 && major != 2) {
    return unimplemented("{}: offset {}, version {} of the .npy format is not supported (1 and 2 are)", name, kMagic.size(),
                         major);
  }
  const std::size_t length_size = major == 1 ? 2 : 4, start = kVersionEnd + length_size;
  std::size_t length = 0;
  if (text.size() < start) return data_loss("{}: offset {}, header length is missing: the file is truncated", name, kVersionEnd);
  for (std::size_t i = length_size; i-- > 0;) length = length << 8 | std::to_integer<std::size_t>(bytes[kVersionEnd + i]);
  if (!fits(start, length, text.size()) || length > kMaxHeader) {
    return data_loss("{}: offset {}, header length {} exceeds the {} bytes that follow, or the limit of {}", name, kVersionEnd,
                     length, text.size() - start, kMaxHeader);
  }
  SHOAL_ASSIGN_OR_RETURN(NpyArray array, HeaderParser(text.substr(start, length), start, name).parse());
  array.data = bytes.subspan(start + length);
  const std::int64_t count = array.shape.element_count();
  const auto wanted =
      count < 0 ? std::nullopt : checked_multiply(static_cast<std::uint64_t>(count), dtype_size_bytes(array.dtype));
  if (wanted != array.data.size()) {
    return data_loss("{}: offset {}, the shape {} of {} does not match the {} bytes of data", name, start + length,
                     array.shape.to_string(), dtype_name(array.dtype), array.data.size());
  }
  return array;
}

Result<Tensor> to_row_major(const NpyArray& array) {
  SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(array.dtype, array.shape));
  if (array.fortran_order && array.shape.rank() > 1) {
    copy_columns(array, tensor.view());
  } else {
    std::ranges::copy(array.data, tensor.view().bytes().begin());
  }
  return tensor;
}

Result<Tensor> read_npy(const std::filesystem::path& path) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, read_whole(path.string()));
  SHOAL_ASSIGN_OR_RETURN(const NpyArray array, parse_npy(bytes, path.string()));
  return to_row_major(array);
}

Status write_npy(const std::filesystem::path& path, const TensorView& tensor) {
  const std::string name = path.string();
  if (dtype_size_bytes(tensor.dtype) == 0 || tensor.element_count() < 0) {
    return invalid_argument("{}: a tensor of {} and shape {} cannot be written", name, dtype_name(tensor.dtype),
                            tensor.shape.to_string());
  }
  File file(std::fopen(name.c_str(), "wb"));
  if (!file) return status_from_errno("create", name, errno);
  const std::string header = make_header(tensor);
  const bool written = std::fwrite(header.data(), 1, header.size(), file.get()) == header.size() &&
                       std::fwrite(tensor.data, 1, tensor.size_bytes(), file.get()) == tensor.size_bytes();
  const int error = written ? 0 : errno;  // closing may change it
  const bool closed = std::fclose(file.release()) == 0;
  return written && closed ? Status() : status_from_errno("write", name, written ? errno : error);
}

}  // namespace shoal
