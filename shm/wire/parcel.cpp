#include "shm/wire/parcel.hpp"

#include <algorithm>
#include <cstring>

#include "shm/base/check.hpp"
#include "shm/base/ranges.hpp"
#include "shm/wire/messages.hpp"

namespace shoal::wire {
namespace {

constexpr std::uint64_t padded(std::uint64_t bytes) { return align_up(bytes, sizeof(std::uint64_t)); }

struct Copies final : Payload::Store {
  std::vector<std::vector<std::byte>> frames;

  std::size_t size() const override { return frames.size(); }
  std::span<const std::byte> frame(std::size_t index) const override { return frames[index]; }
  std::uint64_t memory_bytes() const override {
    std::uint64_t total = 0;
    for (const auto& frame : frames) total += frame.size() + kFrameOverhead;
    return total;
  }
};

}  // namespace

Payload Payload::copy_of(Frames frames) {
  if (frames.empty()) return {};
  auto copies = std::make_shared<Copies>();
  for (const auto& frame : frames) copies->frames.emplace_back(frame.begin(), frame.end());
  return Payload(std::move(copies));
}

std::uint64_t Parcel::size_bytes() const {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < size(); ++i) total += (*this)[i].size();
  return total;
}

void Parcel::clear() {
  head.clear();
  if (head.capacity() > kKeptHead) head = std::vector<std::byte>();  // = {} would keep the memory
  payload = {};
}

bool Bundle::has_room_for(std::size_t head_bytes) const {
  const std::size_t before = std::max(bytes_.size(), sizeof(BundleHeader));
  return head_bytes <= kMostBytes && before + sizeof(std::uint64_t) + padded(head_bytes) <= kMostBytes;
}

void Bundle::add(std::span<const std::byte> head) {
  const std::size_t begin = std::max(bytes_.size(), sizeof(BundleHeader));
  const std::uint64_t size = head.size();
  bytes_.resize(begin + sizeof size + padded(head.size()));  // the filling is zeros
  std::memcpy(bytes_.data() + begin, &size, sizeof size);
  std::ranges::copy(head, bytes_.begin() + static_cast<std::ptrdiff_t>(begin + sizeof size));
  ++count_;
}

std::span<const std::byte> Bundle::message() {
  SHOAL_CHECK(count_ > 0);
  if (count_ == 1) {
    std::uint64_t size = 0;
    std::memcpy(&size, bytes_.data() + sizeof(BundleHeader), sizeof size);
    return std::span<const std::byte>(bytes_).subspan(sizeof(BundleHeader) + sizeof size, size);
  }
  const BundleHeader header{.magic = kMagic,
                            .version = kVersionMajor,
                            .kind = static_cast<std::uint16_t>(Kind::kBundle),
                            .reserved = 0,
                            .count = count_,
                            .reserved2 = 0};
  std::memcpy(bytes_.data(), &header, sizeof header);
  return bytes_;
}

void Bundle::clear() {
  bytes_.clear();
  count_ = 0;
}

std::optional<BundleReader> BundleReader::of(std::span<const std::byte> frame) {
  BundleHeader header{};
  if (frame.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, frame.data(), sizeof header);
  if (header.magic != kMagic || header.version != kVersionMajor || header.kind != static_cast<std::uint16_t>(Kind::kBundle))
    return std::nullopt;
  BundleReader reader;
  reader.frame_ = frame;
  reader.offset_ = sizeof header;
  // One that holds nothing, or too much, is broken.
  const bool may_be_whole = header.count > 0 && frame.size() <= Bundle::kMostBytes;
  reader.left_ = may_be_whole ? header.count : 1;
  if (!may_be_whole) reader.offset_ = frame.size();
  return reader;
}

std::span<const std::byte> BundleReader::next() {
  SHOAL_CHECK(left_ > 0);
  std::uint64_t size = 0;
  const std::size_t begin = offset_ + sizeof size;
  if (fits(offset_, sizeof size, frame_.size())) {
    std::memcpy(&size, frame_.data() + offset_, sizeof size);
    if (size > 0 && size <= frame_.size() && fits(begin, padded(size), frame_.size())) {
      offset_ = begin + padded(size);
      if (--left_ > 0 || offset_ == frame_.size()) return frame_.subspan(begin, size);
    }
  }
  left_ = 0;
  return frame_.first(sizeof(BundleHeader));
}

}  // namespace shoal::wire
