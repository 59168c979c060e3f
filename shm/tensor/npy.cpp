#include "shm/tensor/npy.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"

namespace shoal {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr std::size_t kMaxHeader = 1 << 20;

struct DescrRow {
  std::string_view descr;
  DType dtype;
};
constexpr DescrRow kDescrs[] = {
    {"<f4", DType::kFloat32}, {"<f8", DType::kFloat64}, {"<f2", DType::kFloat16}, {"<V2", DType::kBFloat16},
    {"|u1", DType::kUInt8},   {"|i1", DType::kInt8},    {"<i2", DType::kInt16},   {"<u2", DType::kUInt16},
    {"<i4", DType::kInt32},   {"<u4", DType::kUInt32},  {"<i8", DType::kInt64},   {"<u8", DType::kUInt64},
    {"|b1", DType::kBool},
};

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

struct Header {
  DType dtype = DType::kInvalid;
  bool fortran_order = false;
  std::vector<std::int64_t> dims;
};

/// Reads the header's Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view file) : rest_(text), file_(file) {}

  Result<Header> parse() {
    if (!accept("{")) return damaged("header", "does not begin with '{'");
    while (!accept("}")) {
      const std::optional<std::string_view> key = quoted();
      if (!key || !accept(":")) return damaged("header", "is no dictionary of NumPy's");
      SHOAL_RETURN_IF_ERROR(parse_field(*key));
      accept(",");
    }
    if (header_.dtype == DType::kInvalid) return damaged("descr", "is missing");
    if (!has_order_) return damaged("fortran_order", "is missing");
    if (!has_shape_) return damaged("shape", "is missing");
    return std::move(header_);
  }

 private:
  Status damaged(std::string_view field, std::string_view what) const { return data_loss("{}: {} {}", file_, field, what); }

  Status parse_field(std::string_view key) {
    if (key == "descr") return parse_descr();
    if (key == "fortran_order") return parse_order();
    if (key == "shape") return parse_shape();
    return damaged("header", format("has an unknown field '{}'", key));
  }

  Status parse_descr() {
    const std::optional<std::string_view> descr = quoted();
    if (!descr) return unimplemented("{}: descr is not a plain type: records and objects are not read", file_);
    const auto row =
        std::find_if(std::begin(kDescrs), std::end(kDescrs), [&](const DescrRow& r) { return same(r.descr, *descr); });
    if (row == std::end(kDescrs))
      return unimplemented("{}: descr '{}' is not read: little-endian numbers and bool are", file_, *descr);
    header_.dtype = row->dtype;
    return {};
  }

  /// One-byte types are written with '|', and by some programs with '<'.
  static bool same(std::string_view known, std::string_view given) {
    return given == known ||
           (known[0] == '|' && given.size() == 3 && (given[0] == '<' || given[0] == '=') && given.substr(1) == known.substr(1));
  }

  Status parse_order() {
    has_order_ = true;
    if (accept("True")) {
      header_.fortran_order = true;
      return {};
    }
    return accept("False") ? Status() : damaged("fortran_order", "is neither True nor False");
  }

  Status parse_shape() {
    has_shape_ = true;
    header_.dims.clear();
    if (!accept("(")) return damaged("shape", "is no tuple");
    while (!accept(")")) {
      std::int64_t dim = -1;
      skip_spaces();
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), dim);
      if (error != std::errc() || dim < 0) return damaged("shape", "holds something that is no dimension");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      header_.dims.push_back(dim);
      if (header_.dims.size() > kMaxRank) return damaged("shape", format("has more than {} dimensions", kMaxRank));
      accept(",");
    }
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

  std::string_view rest_, file_;
  Header header_;
  bool has_order_ = false, has_shape_ = false;
};

Status read_exactly(std::FILE* file, std::span<std::byte> bytes, const std::string& name, std::string_view field) {
  const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), file);
  if (got == bytes.size()) return {};
  if (std::ferror(file)) return status_from_errno("read", name, errno);
  return data_loss("{}: {} ends after {} of {} bytes", name, field, got, bytes.size());
}

Result<Header> read_header(std::FILE* file, const std::string& name) {
  std::array<std::byte, 8> start{};  // magic, version
  SHOAL_RETURN_IF_ERROR(read_exactly(file, start, name, "magic"));
  if (std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0)
    return data_loss("{}: magic is not that of a .npy file", name);
  const int major = std::to_integer<int>(start[6]);
  if (major != 1 && major != 2) return unimplemented("{}: version {} of the .npy format is not read (1 and 2 are)", name, major);

  std::array<std::byte, 4> length_bytes{};
  const std::size_t length_size = major == 1 ? 2 : 4;
  SHOAL_RETURN_IF_ERROR(read_exactly(file, std::span(length_bytes).first(length_size), name, "header length"));
  std::size_t length = 0;
  for (std::size_t i = length_size; i-- > 0;) length = length << 8 | std::to_integer<std::size_t>(length_bytes[i]);
  if (length > kMaxHeader) return data_loss("{}: header length {} is over the limit of {}", name, length, kMaxHeader);
  std::vector<std::byte> text(length);
  SHOAL_RETURN_IF_ERROR(read_exactly(file, text, name, "header"));
  return HeaderParser({reinterpret_cast<const char*>(text.data()), text.size()}, name).parse();
}

/// The row-major form of an array whose first dimension changes fastest.
Result<Tensor> from_fortran_order(const Tensor& src) {
  SHOAL_ASSIGN_OR_RETURN(Tensor dst, Tensor::create(src.dtype(), src.shape()));
  const std::size_t size = dtype_size_bytes(src.dtype());
  std::array<std::int64_t, kMaxRank> index{};
  for (std::int64_t i = 0, count = src.shape().element_count(); i < count; ++i) {
    std::int64_t from = 0;
    for (int axis = src.shape().rank(); axis-- > 0;) from = from * src.shape()[axis] + index[static_cast<std::size_t>(axis)];
    std::memcpy(dst.view().data + static_cast<std::size_t>(i) * size, src.view().data + static_cast<std::size_t>(from) * size,
                size);
    for (int axis = src.shape().rank(); axis-- > 0;) {
      if (++index[static_cast<std::size_t>(axis)] < src.shape()[axis]) break;
      index[static_cast<std::size_t>(axis)] = 0;
    }
  }
  return dst;
}

/// Bytes left in the file, so that a header which promises more is refused before memory is taken for it.
std::int64_t bytes_left(std::FILE* file) {
  const long here = std::ftell(file);
  if (here < 0 || std::fseek(file, 0, SEEK_END) != 0) return -1;
  const long end = std::ftell(file);
  std::fseek(file, here, SEEK_SET);
  return end - here;
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

Result<Tensor> read_npy(const std::filesystem::path& path) {
  const std::string name = path.string();
  const File file(std::fopen(name.c_str(), "rb"));
  if (!file) return status_from_errno("open", name, errno);
  SHOAL_ASSIGN_OR_RETURN(const Header header, read_header(file.get(), name));
  const Shape shape(header.dims);
  const auto wanted = checked_multiply(static_cast<std::uint64_t>(shape.element_count()), dtype_size_bytes(header.dtype));
  const std::int64_t left = bytes_left(file.get());
  if (shape.element_count() < 0 || !wanted || left < 0 || *wanted != static_cast<std::uint64_t>(left)) {
    return data_loss("{}: the shape {} of {} does not fit the {} bytes of data", name, shape.to_string(),
                     dtype_name(header.dtype), left);
  }
  SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(header.dtype, shape));
  SHOAL_RETURN_IF_ERROR(read_exactly(file.get(), tensor.view().bytes(), name, "data"));
  return header.fortran_order && shape.rank() > 1 ? from_fortran_order(tensor) : tensor;
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
  const bool closed = std::fclose(file.release()) == 0;
  return written && closed ? Status() : status_from_errno("write", name, errno);
}

}  // namespace shoal
