// What this build sends and reads, compared with the messages of releases (tests/fixtures): byte by byte with those of the
// newest one, and read from those of all.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/parcel.hpp"
#include "tests/support/says.hpp"
#include "tests/support/wire_fixture.hpp"

namespace shoal::wire {
namespace {

using test::patch;
using test::WireFixture;

std::string as_string(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
std::span<const std::byte> as_span(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }

// The first frames of the messages, as values.
WireTensor tensor(DType dtype, const Shape& shape, std::uint64_t offset, Location location = Location::kArena) {
  WireTensor wire = to_wire({dtype, shape, nullptr});
  wire.offset_bytes = offset;
  wire.location = static_cast<std::uint8_t>(location);
  return wire;
}
RequestHeader header_of(Kind kind, std::uint64_t seq) { return {.kind = static_cast<std::uint16_t>(kind), .seq = seq}; }

Request plain_request() {
  Request request{.header = header_of(Kind::kRequest, 5)};
  request.header.model_id = 1;
  request.header.signature = 0x11223344;
  request.inputs = {tensor(DType::kFloat32, {4}, 0)};
  request.outputs = {WireTensor{.offset_bytes = 128, .capacity_bytes = 64}};
  return request;
}
Request request_with_everything() {
  Request request{.header = header_of(Kind::kRequest, 0x1122334455667788)};
  request.header.model_id = 2;
  request.header.signature = 0xfedcba98;
  request.header.timeout_ns = 50'000'000;
  request.header.priority = -1;
  request.header.model_version = 3;
  request.header.flow = 0x0102030405060708;
  request.inputs = {tensor(DType::kInt64, {2, 1}, 64), tensor(DType::kBool, Shape{}, 192)};
  request.outputs = {WireTensor{.capacity_bytes = 4096}, WireTensor{.offset_bytes = 4096}};
  return request;
}
Request request_in_frame() {
  Request request{.header = header_of(Kind::kRequest, 6)};
  request.header.model_id = 1;
  request.header.signature = 0x11223344;
  request.header.timeout_ns = 2'000'000'000;
  request.header.priority = 1;
  request.header.model_version = 1;
  request.header.flow = 77;
  request.inputs = {tensor(DType::kFloat32, {4}, 0, Location::kFrame)};
  request.outputs = {WireTensor{}};
  return request;
}
Request cancel() { return {.header = header_of(Kind::kCancel, 5)}; }

constexpr std::uint16_t kReply = static_cast<std::uint16_t>(Kind::kReply);
Reply plain_reply() {
  Reply reply = {.header = {.kind = kReply,
                            .seq = 5,
                            .request_id = 0x2a00000001,
                            .incarnation = 3,
                            .attempt = 1,
                            .ran = 2,
                            .released = 1,
                            .attempts = 1,
                            .batch = 1,
                            .model_version = 1,
                            .queue_ns = 1000,
                            .compute_ns = 2'000'000},
                 .outputs = {tensor(DType::kFloat32, {4}, 128)}};
  reply.outputs[0].capacity_bytes = 64;
  return reply;
}
Reply reply_in_frame() {
  return {.header = {.kind = kReply,
                     .seq = 6,
                     .request_id = 0x2a00000002,
                     .incarnation = 4,
                     .attempt = 2,
                     .ran = 2,
                     .released = 1,
                     .attempts = 2,
                     .batch = 2,
                     .model_version = 3,
                     .queue_ns = 70'000,
                     .compute_ns = 9'000'000'000},
          .outputs = {tensor(DType::kFloat32, {4}, 0, Location::kFrame)}};
}
Reply overloaded_reply() { return {.header = {.kind = kReply, .seq = 5, .status = 4, .released = 1, .retry_after_ms = 250}}; }
Reply reply_under_way() {
  return {.header = {.kind = kReply,
                     .seq = 5,
                     .request_id = 0x2a00000001,
                     .attempt = 1,
                     .status = 3,
                     .ran = 1,
                     .attempts = 1,
                     .model_version = 1,
                     .queue_ns = 1000}};
}
Reply release() {
  return {.header = {.kind = static_cast<std::uint16_t>(Kind::kRelease), .seq = 5, .request_id = 0x2a00000001, .released = 1}};
}

const std::pair<const char*, Request (*)()> kRequests[] = {{"REQUEST", plain_request},
                                                           {"REQUEST_WITH_EVERYTHING", request_with_everything},
                                                           {"REQUEST_IN_FRAME", request_in_frame},
                                                           {"CANCEL", cancel}};
const std::pair<const char*, Reply (*)()> kReplies[] = {{"REPLY", plain_reply},
                                                        {"REPLY_IN_FRAME", reply_in_frame},
                                                        {"REPLY_OVERLOADED", overloaded_reply},
                                                        {"REPLY_UNDER_WAY", reply_under_way},
                                                        {"RELEASE", release}};

std::string encoded(const Request& request) {
  std::vector<std::byte> frame;
  encode_request(request, frame);
  return as_string(frame);
}
std::string encoded(const Reply& reply) {
  std::vector<std::byte> frame;
  encode_reply(reply, frame);
  return as_string(frame);
}

struct Packet {
  const char* name;
  ControlKind kind;
  std::uint64_t id, a, b;
  const char* text;
  std::size_t fds;
};
constexpr Packet kPackets[] = {{"ATTACH", ControlKind::kAttach, 0, kBundles, 0, "", 3},
                               {"ATTACH_WITHOUT_FEATURES", ControlKind::kAttach, 0, 0, 0, "", 3},
                               {"ATTACH_WITHOUT_ARENAS", ControlKind::kAttach, 0, kBundles, 0, "", 1},
                               {"BOUND", ControlKind::kBound, 0, 0, 0, "", 0},
                               {"PATH", ControlKind::kPath, 7, 64 << 20, kBundles, "/run/shoal/c7", 0},
                               {"PATH_WITHOUT_FEATURES", ControlKind::kPath, 7, 0, 0, "/run/shoal/c7", 0},
                               {"REFUSED", ControlKind::kRefused, 0, 4, 10 << 20, "attach: arenas do not fit", 0},
                               {"REFUSED_BY_ROLE", ControlKind::kRefused, 0, 12, 0, "user 1000 has no role", 0}};

// Sends the packet as it is, with that many descriptors.
Result<std::optional<ControlMessage>> received(const std::string& bytes, std::size_t fds = 0) {
  const ControlPair pair = make_control_pair().value();
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxControlFds * sizeof(int))] = {};
  std::string copy = bytes;
  iovec part{copy.data(), copy.size()};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (fds > 0) {
    packet.msg_control = control;
    packet.msg_controllen = CMSG_SPACE(fds * sizeof(int));
    cmsghdr* const head = CMSG_FIRSTHDR(&packet);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds * sizeof(int));
    const std::vector<int> numbers(fds, 0);
    std::memcpy(CMSG_DATA(head), numbers.data(), fds * sizeof(int));
  }
  EXPECT_EQ(::sendmsg(pair.theirs.get(), &packet, 0), static_cast<ssize_t>(bytes.size()));
  return receive_control(pair.ours.get());
}

// ---- what this build sends ----

class NewestRelease : public testing::Test {
 protected:
  const WireFixture fixture_{test::kReleases.back()};
};

TEST_F(NewestRelease, RequestsHaveItsBytes) {
  for (const auto& [name, make] : kRequests) EXPECT_EQ(encoded(make()), fixture_.packet(name)) << name;
}

TEST_F(NewestRelease, RepliesHaveItsBytes) {
  for (const auto& [name, make] : kReplies) EXPECT_EQ(encoded(make()), fixture_.packet(name)) << name;
}

TEST_F(NewestRelease, ControlPacketsHaveItsBytes) {
  for (const Packet& packet : kPackets) {
    const ControlPair pair = make_control_pair().value();
    ControlMessage message{.kind = packet.kind, .id = packet.id, .a = packet.a, .b = packet.b, .text = packet.text};
    for (std::size_t i = 0; i < packet.fds; ++i) message.fds.push_back(duplicate_fd(0).value());
    ASSERT_TRUE(send_control(pair.ours.get(), message).ok());
    std::string bytes(1000, '\0');
    const ssize_t size = ::recv(pair.theirs.get(), bytes.data(), bytes.size(), 0);
    ASSERT_GT(size, 0);
    bytes.resize(static_cast<std::size_t>(size));
    EXPECT_EQ(bytes, fixture_.packet(packet.name)) << packet.name;
  }
}

TEST_F(NewestRelease, ControlHeadersHaveItsBytes) {
  const auto head = [](Kind kind, std::uint64_t seq, StatusCode status = StatusCode::kOk) {
    const ControlHeader header = make_control(kind, seq, status);
    return as_string(std::as_bytes(std::span(&header, 1)));
  };
  EXPECT_EQ(head(Kind::kWelcome, 0), fixture_.packet("WELCOME"));
  EXPECT_EQ(head(Kind::kWelcomed, 0), fixture_.packet("WELCOMED"));
  EXPECT_EQ(head(Kind::kControl, 20), fixture_.packet("DESCRIBE"));
  EXPECT_EQ(head(Kind::kControlReply, 20), fixture_.packet("DESCRIBED"));
  EXPECT_EQ(head(Kind::kControlReply, 21, StatusCode::kNotFound), fixture_.packet("NOT_DESCRIBED"));
}

TEST_F(NewestRelease, BundlesHaveItsBytes) {
  Bundle bundle;
  const std::string first = encoded(plain_reply()), second = encoded(release());
  bundle.add(as_span(first));
  bundle.add(as_span(second));
  EXPECT_EQ(as_string(bundle.message()), fixture_.packet("BUNDLE"));
}

// ---- what this build reads ----

class Neighbors : public testing::TestWithParam<const char*> {
 protected:
  const WireFixture fixture_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Release, Neighbors, testing::ValuesIn(test::kReleases),
                         [](const auto& release) { return std::string(release.param); });

TEST_P(Neighbors, RequestsAreRead) {
  for (const auto& [name, make] : kRequests) {
    const auto request = decode_request(as_span(fixture_.packet(name)));
    ASSERT_TRUE(request.ok()) << name << ": " << request.status().to_string();
    const Request expected = make();
    EXPECT_EQ(request->header.kind, expected.header.kind) << name;
    EXPECT_EQ(request->header.seq, expected.header.seq) << name;
    EXPECT_EQ(request->header.model_id, expected.header.model_id) << name;
    EXPECT_EQ(request->header.signature, expected.header.signature) << name;
    EXPECT_EQ(request->header.timeout_ns, expected.header.timeout_ns) << name;
    EXPECT_EQ(request->header.priority, expected.header.priority) << name;
    EXPECT_EQ(request->header.model_version, expected.header.model_version) << name;
    EXPECT_EQ(request->header.flow, expected.header.flow) << name;
    ASSERT_EQ(request->inputs.size(), expected.inputs.size()) << name;
    ASSERT_EQ(request->outputs.size(), expected.outputs.size()) << name;
    for (std::size_t i = 0; i < expected.inputs.size(); ++i) {
      EXPECT_EQ(request->inputs[i].offset_bytes, expected.inputs[i].offset_bytes) << name;
      EXPECT_EQ(request->inputs[i].size_bytes, expected.inputs[i].size_bytes) << name;
      EXPECT_EQ(request->inputs[i].dtype, expected.inputs[i].dtype) << name;
      EXPECT_EQ(request->inputs[i].location, expected.inputs[i].location) << name;
      EXPECT_EQ(shape_of(request->inputs[i]), shape_of(expected.inputs[i])) << name;
    }
    for (std::size_t i = 0; i < expected.outputs.size(); ++i) {
      EXPECT_EQ(request->outputs[i].offset_bytes, expected.outputs[i].offset_bytes) << name;
      EXPECT_EQ(request->outputs[i].capacity_bytes, expected.outputs[i].capacity_bytes) << name;
    }
  }
}

void expect_same(const Reply& reply, const Reply& expected, const char* name) {
  EXPECT_EQ(reply.header.kind, expected.header.kind) << name;
  EXPECT_EQ(reply.header.seq, expected.header.seq) << name;
  EXPECT_EQ(reply.header.status, expected.header.status) << name;
  EXPECT_EQ(reply.header.ran, expected.header.ran) << name;
  EXPECT_EQ(reply.header.released, expected.header.released) << name;
  EXPECT_EQ(reply.header.attempts, expected.header.attempts) << name;
  EXPECT_EQ(reply.header.batch, expected.header.batch) << name;
  EXPECT_EQ(reply.header.retry_after_ms, expected.header.retry_after_ms) << name;
  EXPECT_EQ(reply.header.model_version, expected.header.model_version) << name;
  EXPECT_EQ(reply.header.queue_ns, expected.header.queue_ns) << name;
  EXPECT_EQ(reply.header.compute_ns, expected.header.compute_ns) << name;
  ASSERT_EQ(reply.outputs.size(), expected.outputs.size()) << name;
  for (std::size_t i = 0; i < expected.outputs.size(); ++i) {
    EXPECT_EQ(reply.outputs[i].offset_bytes, expected.outputs[i].offset_bytes) << name;
    EXPECT_EQ(reply.outputs[i].size_bytes, expected.outputs[i].size_bytes) << name;
    EXPECT_EQ(reply.outputs[i].dtype, expected.outputs[i].dtype) << name;
    EXPECT_EQ(reply.outputs[i].location, expected.outputs[i].location) << name;
    EXPECT_EQ(shape_of(reply.outputs[i]), shape_of(expected.outputs[i])) << name;
  }
}

TEST_P(Neighbors, RepliesAreRead) {
  for (const auto& [name, make] : kReplies) {
    const auto reply = decode_reply(as_span(fixture_.packet(name)));
    ASSERT_TRUE(reply.ok()) << name << ": " << reply.status().to_string();
    expect_same(*reply, make(), name);
  }
}

TEST_P(Neighbors, BundlesAreRead) {
  const std::string bytes = fixture_.packet("BUNDLE");
  auto reader = BundleReader::of(as_span(bytes));
  ASSERT_TRUE(reader);
  for (const auto make : {plain_reply, release}) {
    ASSERT_FALSE(reader->is_done());
    const auto reply = decode_reply(reader->next());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    expect_same(*reply, make(), "in the bundle");
  }
  EXPECT_TRUE(reader->is_done());
}

TEST_P(Neighbors, ControlPacketsAreRead) {
  for (const Packet& packet : kPackets) {
    const auto message = received(fixture_.packet(packet.name), packet.fds);
    ASSERT_TRUE(message.ok() && *message) << packet.name << ": " << message.status().to_string();
    EXPECT_EQ((*message)->kind, packet.kind) << packet.name;
    EXPECT_EQ((*message)->id, packet.id) << packet.name;
    EXPECT_EQ((*message)->a, packet.a) << packet.name;
    EXPECT_EQ((*message)->b, packet.b) << packet.name;
    EXPECT_EQ((*message)->text, packet.text) << packet.name;
    EXPECT_EQ((*message)->fds.size(), packet.fds) << packet.name;
  }
}

TEST_P(Neighbors, ControlHeadersAreRead) {
  int count = 0;
  for (const auto& [name, frames] : fixture_.all()) {
    const auto kind = peek_kind(as_span(frames[0]));
    if (!kind.ok() || *kind < Kind::kControl || *kind > Kind::kWelcomed) continue;
    const auto header = decode_control(as_span(frames[0]));
    ASSERT_TRUE(header.ok()) << name << ": " << header.status().to_string();
    EXPECT_EQ(header->status, name == "NOT_DESCRIBED" ? 2 : name == "OVERLOADED" ? 4 : 0) << name;
    EXPECT_EQ(header->seq == 0, *kind >= Kind::kWelcome) << name;
    ++count;
  }
  EXPECT_GE(count, 20);
}

// ---- what a next release may add (PROTOCOL.md, section 6) ----

TEST_P(Neighbors, ReservedBytesAndFlagsMeanNothing) {
  std::string request = fixture_.packet("REQUEST"), reply = fixture_.packet("REPLY"), control = fixture_.packet("DESCRIBE");
  patch(request, 34, std::uint16_t{0xffff});  // flags
  for (int i = 0; i < 5; ++i) {               // reserved bytes of the input and of the output
    patch(request, 88 + 91 + static_cast<std::size_t>(i), '\xff');
    patch(reply, 72 + 91 + static_cast<std::size_t>(i), '\xff');
  }
  for (std::size_t offset = 18; offset < 24; ++offset) patch(control, offset, '\xff');
  EXPECT_EQ(decode_request(as_span(request)).value().inputs.size(), 1u);
  EXPECT_EQ(decode_reply(as_span(reply)).value().outputs.size(), 1u);
  EXPECT_EQ(decode_control(as_span(control)).value().seq, 20u);
  std::string bundle = fixture_.packet("BUNDLE");
  patch(bundle, 8, ~std::uint64_t{0});
  patch(bundle, 20, ~std::uint32_t{0});
  auto reader = BundleReader::of(as_span(bundle));
  ASSERT_TRUE(reader);
  EXPECT_TRUE(decode_reply(reader->next()).ok());
}

TEST_P(Neighbors, AStatusThatIsNotKnownIsReadAndHasAName) {
  std::string reply = fixture_.packet("REPLY_OVERLOADED");
  patch(reply, 34, std::uint16_t{200});
  const auto read = decode_reply(as_span(reply));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(Status(static_cast<StatusCode>(read->header.status), "why").to_string(), "UNKNOWN: why");
}

TEST_P(Neighbors, APacketOfAKindThatIsNotKnownIsRead) {
  std::string packet = fixture_.packet("PATH");
  patch(packet, 6, std::uint16_t{999});
  const auto message = received(packet);
  ASSERT_TRUE(message.ok() && *message);
  EXPECT_EQ(static_cast<int>((*message)->kind), 999);
  EXPECT_EQ(static_cast<int>(peek_kind(as_span(fixture_.packet("REPLY").replace(6, 2, "\x63\x00", 2))).value()), 99);
}

TEST_P(Neighbors, AnotherVersionIsRefusedAndBothAreNamed) {
  std::string packet = fixture_.packet("ATTACH_WITHOUT_ARENAS"), request = fixture_.packet("REQUEST"),
              reply = fixture_.packet("REPLY"), control = fixture_.packet("DESCRIBE");
  for (std::string* bytes : {&packet, &request, &reply, &control}) patch(*bytes, 4, std::uint16_t{77});
  const std::string ours = "speaks " + std::to_string(kVersionMajor);
  EXPECT_TRUE(test::says(received(packet, 1).status().message(), {"version 77", "speaks 1"}));
  EXPECT_TRUE(test::says(decode_request(as_span(request)).status().message(), {"version 77", ours}));
  EXPECT_TRUE(test::says(decode_reply(as_span(reply)).status().message(), {"version 77", ours}));
  EXPECT_TRUE(test::says(decode_control(as_span(control)).status().message(), {"version 77", ours}));
}

}  // namespace
}  // namespace shoal::wire
