#include "tests/unit/worker/import/mxnet/array_files.hpp"

#include <zlib.h>

#include <algorithm>

namespace shoal::test {
namespace {

constexpr std::int32_t kCpu = 1;
constexpr std::uint32_t kIn64 = 0xffffffff;

std::string shape(Era era, const std::vector<std::int64_t>& dims) {
  std::string bytes = raw(static_cast<std::int32_t>(dims.size()));
  for (const std::int64_t dim : dims) bytes += era == Era::kV0 ? raw(static_cast<std::uint32_t>(dim)) : raw(dim);
  return bytes;
}

std::string deflate(const std::string& contents) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, contents.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(contents.data()));
  stream.avail_in = static_cast<uInt>(contents.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

template <typename T>
std::string half(std::size_t value) {
  return raw(static_cast<T>(value));
}

}  // namespace

std::string record(Era era, const std::vector<std::int64_t>& dims, std::int32_t flag, const std::string& data) {
  std::string bytes;
  if (era == Era::kV1) bytes = raw<std::uint32_t>(0xF993fac8);
  if (era == Era::kV2) bytes = raw<std::uint32_t>(0xF993fac9) + raw<std::int32_t>(0);
  if (era == Era::kV3) bytes = raw<std::uint32_t>(0xF993faca) + raw<std::int32_t>(0);
  return bytes + shape(era, dims) + raw(kCpu) + raw<std::int32_t>(0) + raw(flag) + data;
}

std::string sparse_record(std::int32_t storage, std::int64_t rows, std::int64_t columns,
                          const std::vector<std::int64_t>& pointers, const std::vector<std::int64_t>& places,
                          const std::string& data) {
  constexpr std::int32_t kInt64 = 6;
  const bool csr = storage == 2;
  const auto count = static_cast<std::int64_t>(places.size());
  std::string bytes = raw<std::uint32_t>(0xF993fac9) + raw(storage);
  bytes += csr ? shape(Era::kV2, {count}) : shape(Era::kV2, {count, columns});
  bytes += shape(Era::kV2, {rows, columns}) + raw(kCpu) + raw<std::int32_t>(0) + raw<std::int32_t>(0);
  if (csr) bytes += raw(kInt64) + shape(Era::kV2, {rows + 1});
  bytes += raw(kInt64) + shape(Era::kV2, {count}) + data;
  for (const std::vector<std::int64_t>* const numbers : {&pointers, &places}) {
    for (const std::int64_t number : *numbers) bytes += raw(number);
  }
  return bytes;
}

std::string sparse_record(std::int32_t storage, std::int64_t rows, std::int64_t columns, std::span<const float> elements) {
  const auto width = static_cast<std::size_t>(columns);
  std::vector<std::int64_t> pointers, places;
  std::string data;
  const auto store = [&](std::span<const float> some, std::size_t place) {
    places.push_back(static_cast<std::int64_t>(place));
    for (const float element : some) data += raw(element);
  };
  const auto is_stored = [](float element) { return element != 0; };
  if (storage == 2) pointers.push_back(0);
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    const auto line = elements.subspan(row * width, width);
    if (storage == 1 && std::ranges::any_of(line, is_stored)) store(line, row);
    for (std::size_t column = 0; storage == 2 && column < width; ++column) {
      if (is_stored(line[column])) store(line.subspan(column, 1), column);
    }
    if (storage == 2) pointers.push_back(static_cast<std::int64_t>(places.size()));
  }
  return sparse_record(storage, rows, columns, pointers, places, data);
}

std::string sparse_record(std::int32_t storage) {
  if (storage == 2) return sparse_record(storage, 5, 2, {0, 0, 0, 1, 1, 1}, {1}, floats(1));
  return sparse_record(storage, 5, 2, {}, {1}, floats(2));
}

std::string list(const std::vector<std::string>& records, const std::vector<std::string>& names) {
  std::string bytes = raw<std::uint64_t>(0x112) + raw<std::uint64_t>(0) + raw<std::uint64_t>(records.size());
  for (const std::string& record : records) bytes += record;
  bytes += raw<std::uint64_t>(names.size());
  for (const std::string& name : names) bytes += raw<std::uint64_t>(name.size()) + name;
  return bytes;
}

std::string floats(std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += raw(static_cast<float>(i));
  return bytes;
}

std::string npy(const std::string& descr, const std::string& order, const std::string& shape, const std::string& data) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header.append(63 - (10 + header.size()) % 64, ' ') += '\n';
  return std::string("\x93NUMPY\1\0", 8) + half<std::uint16_t>(header.size()) + header + data;
}

Archive archive(const std::vector<Member>& members, bool zip64) {
  Archive made;
  std::string directory;
  for (const Member& member : members) {
    const std::string stored = member.deflated ? deflate(member.contents) : member.contents;
    const auto crc = static_cast<std::uint32_t>(
        ::crc32(0, reinterpret_cast<const Bytef*>(member.contents.data()), static_cast<uInt>(member.contents.size())));
    const std::uint16_t flags = member.streamed ? 0x0808 : 0;
    const std::string common =
        raw<std::uint16_t>(20) + raw(flags) + raw<std::uint16_t>(member.deflated ? 8 : 0) + raw<std::uint32_t>(0);
    const std::string sizes = raw(crc) + half<std::uint32_t>(stored.size()) + half<std::uint32_t>(member.contents.size());
    const std::string in64 = raw(crc) + raw(kIn64) + raw(kIn64);
    std::string extra;
    if (member.zip64) {
      extra = raw<std::uint16_t>(1) + raw<std::uint16_t>(24) + raw<std::uint64_t>(member.contents.size()) +
              raw<std::uint64_t>(stored.size()) + raw<std::uint64_t>(made.bytes.size());
    }
    directory += raw<std::uint32_t>(0x02014b50) + raw<std::uint16_t>(20) + common + (member.zip64 ? in64 : sizes) +
                 half<std::uint16_t>(member.name.size()) + half<std::uint16_t>(extra.size()) + std::string(10, '\0') +
                 (member.zip64 ? raw(kIn64) : half<std::uint32_t>(made.bytes.size())) + member.name + extra;
    made.bytes += raw<std::uint32_t>(0x04034b50) + common + (member.streamed ? std::string(12, '\0') : sizes) +
                  half<std::uint16_t>(member.name.size()) + raw<std::uint16_t>(0) + member.name + stored;
    if (member.streamed) made.bytes += raw<std::uint32_t>(0x08074b50) + sizes;
  }
  made.directory = made.bytes.size();
  made.bytes += directory;
  made.end = made.bytes.size();
  if (zip64) {
    made.bytes += raw<std::uint32_t>(0x06064b50) + raw<std::uint64_t>(44) + raw<std::uint32_t>(0) + raw<std::uint64_t>(0) +
                  raw<std::uint64_t>(members.size()) + raw<std::uint64_t>(members.size()) + raw<std::uint64_t>(directory.size()) +
                  raw<std::uint64_t>(made.directory);
    made.bytes += raw<std::uint32_t>(0x07064b50) + raw<std::uint32_t>(0) + raw<std::uint64_t>(made.end) + raw<std::uint32_t>(1);
    made.end = made.bytes.size();
  }
  made.bytes += raw<std::uint32_t>(0x06054b50) + raw<std::uint32_t>(0);
  made.bytes += zip64 ? raw(kIn64) + raw(kIn64) + raw(kIn64)
                      : half<std::uint16_t>(members.size()) + half<std::uint16_t>(members.size()) +
                            half<std::uint32_t>(directory.size()) + half<std::uint32_t>(made.directory);
  made.bytes += raw<std::uint16_t>(0);
  return made;
}

}  // namespace shoal::test
