#include "shm/wire/parcel.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "shm/wire/messages.hpp"

namespace shoal::wire {
namespace {

std::span<const std::byte> as_bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
std::string as_text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::vector<std::byte> bundle_of(std::initializer_list<std::string_view> texts) {
  Bundle bundle;
  for (const std::string_view text : texts) bundle.add(as_bytes_of(text));
  const auto message = bundle.message();
  return {message.begin(), message.end()};
}

// The messages of a bundle, the header of a broken one among them.
std::vector<std::string> messages_of(std::span<const std::byte> frame) {
  std::vector<std::string> messages;
  auto reader = BundleReader::of(frame);
  while (reader && !reader->is_done()) messages.push_back(as_text_of(reader->next()));
  return messages;
}

TEST(Parcel, AClearedOneKeepsTheRoomOfAShortHeadOnly) {
  for (const std::size_t size : {Parcel::kKeptHead, Parcel::kKeptHead + 1}) {
    Parcel parcel{.head = std::vector<std::byte>(size), .payload = {}};
    parcel.clear();
    EXPECT_EQ(parcel.head.capacity(), size == Parcel::kKeptHead ? size : 0) << size;
  }
}

TEST(Parcel, APayloadOfCopiesHoldsTheFrames) {
  const std::span<const std::byte> frames[] = {as_bytes_of("one"), as_bytes_of("")};
  const Parcel parcel{.head = {}, .payload = Payload::copy_of(frames)};
  ASSERT_EQ(parcel.size(), 3u);
  EXPECT_EQ(as_text_of(parcel[1]), "one");
  EXPECT_EQ(parcel.size_bytes(), 3u);
  EXPECT_EQ(parcel.memory_bytes(), 3 + 3 * kFrameOverhead);
  EXPECT_TRUE(Payload::copy_of({}).empty());
}

TEST(Bundle, ReadsBackAsWritten) {
  EXPECT_EQ(messages_of(bundle_of({"first", "12345678", "x"})), (std::vector<std::string>{"first", "12345678", "x"}));
}

TEST(Bundle, OfOneMessageIsThatMessage) {
  EXPECT_EQ(as_text_of(bundle_of({"alone"})), "alone");
  EXPECT_FALSE(BundleReader::of(as_bytes_of("alone")));
}

TEST(Bundle, TakesNoMoreThanItsLimit) {
  Bundle bundle;
  const std::string text(100, 'x');
  int count = 0;
  for (; bundle.has_room_for(text.size()); ++count) bundle.add(as_bytes_of(text));
  EXPECT_LE(bundle.message().size(), Bundle::kMostBytes);
  EXPECT_EQ(messages_of(bundle.message()).size(), static_cast<std::size_t>(count));
  bundle.clear();
  EXPECT_FALSE(bundle.has_room_for(Bundle::kMostBytes));
  EXPECT_FALSE(bundle.has_room_for(~std::size_t{0})) << "nor does the sum wrap";
}

// The bytes of PROTOCOL.md's example.
TEST(Bundle, HasTheBytesOfTheSpecification) {
  std::string hex;
  for (const std::byte byte : bundle_of({"ab", "c"})) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", static_cast<unsigned>(byte));
    hex += text;
  }
  EXPECT_EQ(hex,
            "53484f4c03000a00"
            "0000000000000000"
            "0200000000000000"
            "0200000000000000"
            "6162000000000000"
            "0100000000000000"
            "6300000000000000");
}

TEST(Bundle, ThatIsCutOffAnywhereEndsWithItsHeaderWhichIsNoMessage) {
  const auto whole = bundle_of({"first", "second", "third"});
  for (std::size_t size = sizeof(BundleHeader); size < whole.size(); ++size) {
    const auto messages = messages_of(std::span(whole).first(size));
    ASSERT_LE(messages.size(), 3u) << size;
    ASSERT_EQ(messages.back().size(), sizeof(BundleHeader)) << size;
    const auto kind = peek_kind(as_bytes_of(messages.back()));
    EXPECT_TRUE(kind.ok() && *kind == Kind::kBundle);
    EXPECT_FALSE(decode_request(as_bytes_of(messages.back())).ok());
    EXPECT_FALSE(decode_reply(as_bytes_of(messages.back())).ok());
    EXPECT_FALSE(decode_control(as_bytes_of(messages.back())).ok());
  }
}

TEST(Bundle, WithMoreBytesThanItsMessagesIsBroken) {
  auto frame = bundle_of({"first", "second"});
  frame.resize(frame.size() + 8);
  EXPECT_EQ(messages_of(frame).back().size(), sizeof(BundleHeader));
  EXPECT_EQ(messages_of(frame).size(), 2u);
}

TEST(Bundle, OfNothingOrTooMuchIsBroken) {
  auto empty = bundle_of({"first", "second"});
  const std::uint32_t none = 0;
  std::memcpy(empty.data() + 16, &none, sizeof none);
  EXPECT_EQ(messages_of(empty).size(), 1u);
  auto large = bundle_of({"first", "second"});
  large.resize(Bundle::kMostBytes + 8);
  EXPECT_EQ(messages_of(large).size(), 1u);
}

TEST(Bundle, ReadersSurviveAnyBytes) {
  std::mt19937 random(3);
  const auto whole = bundle_of({"first", "second", std::string(300, 'x')});
  std::size_t most = 0;
  for (int round = 0; round < 200'000; ++round) {
    auto frame = whole;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
      frame[8 + random() % (frame.size() - 8)] = static_cast<std::byte>(random());
    std::size_t bytes = 0;
    for (const std::string& message : messages_of(frame)) bytes += message.size();
    most = std::max(most, bytes);
  }
  EXPECT_LE(most, whole.size() + sizeof(BundleHeader));
}

}  // namespace
}  // namespace shoal::wire
