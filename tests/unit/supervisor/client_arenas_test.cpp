// The arenas of clients: what may be attached, how much of it, and what requests may name of it.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "shm/model/model_config.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/messages.hpp"
#include "supervisor/plane/fair_share.hpp"
#include "tests/support/sparse_memfd.hpp"
#include "tests/unit/supervisor/clients_fixture.hpp"

namespace {
bool is_everything_there = false;
unsigned look_takes_us = 0;
}  // namespace

// Replaces that of libc. So an arena that has no memory can be looked at as if it were full.
extern "C" int mincore(void* address, size_t size, unsigned char* is_there) noexcept {
  if (look_takes_us != 0) ::usleep(look_takes_us);
  const long result = ::syscall(SYS_mincore, address, size, is_there);
  if (is_everything_there) std::fill_n(is_there, size / shoal::kPageBytes, 1);
  return static_cast<int>(result);
}

namespace shoal::supervisor {
namespace {

TEST_F(ClientsTest, DescriptorsThatAreNoArenasAreRefusedByName) {
  const auto refused_for = [&](std::vector<UniqueFd> fds, const std::string& why) {
    const UniqueFd client = connect();
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    message.fds = std::move(fds);
    ASSERT_TRUE(wire::send_control(client.get(), message).ok());
    serve();
    expect_refused(client, StatusCode::kInvalidArgument, why);
  };
  const auto null = [] { return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)); };
  std::vector<UniqueFd> fds;
  refused_for({}, "0 descriptors instead of three");
  fds.push_back(null());
  fds.push_back(null());
  refused_for(std::move(fds), "2 descriptors instead of three");
  fds.clear();
  for (int i = 0; i < 3; ++i) fds.push_back(null());
  refused_for(std::move(fds), "input arena");
}

class ClientArenasTest : public ClientsTest {
 protected:
  static constexpr std::uint64_t kUnit = std::uint64_t{1} << 26;
  ClientArenasTest() {
    clients_.limit_connections(16, 0);
    clients_.limit_arenas(64 * kUnit);  // one for each, and 48 for all
  }
  /// Attaches two arenas. They are sparse, so that they cost nothing but addresses.
  void attach_arenas(const UniqueFd& socket, std::uint64_t bytes) {
    wire::ControlMessage message = hello();
    message.fds.push_back(test::sparse_memfd(bytes));
    message.fds.push_back(test::sparse_memfd(bytes));
    EXPECT_TRUE(seal(message.fds[1], Seals::kOneWriter).ok() && seal(message.fds[2], Seals::kFixedSize).ok());
    EXPECT_TRUE(wire::send_control(socket.get(), message).ok());
    serve();
  }
  std::unique_ptr<OtherProcess> other_process(std::uint64_t bytes) {
    auto other = std::make_unique<OtherProcess>(directory_.attach_path());
    attach_arenas(other->connection, bytes);
    return other;
  }
};

TEST_F(ClientArenasTest, AllTogetherAreLimitedUntilTheLastRequestOfEachIsOver) {
  auto large = other_process(12 * kUnit);
  EXPECT_EQ(receive(large->connection).kind, wire::ControlKind::kPath);
  EXPECT_EQ(clients_.arena_bytes(), 24 * kUnit);
  expect_refused(other_process(12 * kUnit)->connection, StatusCode::kOverloaded, "total_arena_gb");
  EXPECT_EQ(clients_.arena_bytes(), 24 * kUnit) << "who is refused has nothing";
  const auto half = other_process(6 * kUnit), small = other_process(kUnit / 2);
  EXPECT_EQ(receive(half->connection).kind, wire::ControlKind::kPath);
  EXPECT_EQ(receive(small->connection).kind, wire::ControlKind::kPath);
  ++clients_.find(1)->outstanding;
  large.reset();
  ASSERT_TRUE(pollfd_is_readable(loop_.fd()));
  serve();
  EXPECT_EQ(clients_.find(1), nullptr);
  EXPECT_EQ(clients_.arena_bytes(), 37 * kUnit) << "its request may run still";
  expect_refused(other_process(12 * kUnit)->connection, StatusCode::kOverloaded, "total_arena_gb");
  clients_.release(1);
  EXPECT_EQ(clients_.arena_bytes(), 13 * kUnit);
  EXPECT_EQ(receive(other_process(8 * kUnit)->connection).kind, wire::ControlKind::kPath);
}

// 16 connections of one process would have the parts of 16, and leave nothing to others.
TEST_F(ClientArenasTest, ManyConnectionsOfOneProcessHaveOnePart) {
  std::vector<UniqueFd> greedy;
  for (int i = 0; i < 12; ++i) {
    greedy.push_back(connect());
    attach_arenas(greedy.back(), 2 * kUnit);
    const wire::ControlMessage answer = receive(greedy.back());
    if (answer.kind == wire::ControlKind::kPath) continue;
    EXPECT_NE(answer.text.find("total_arena_gb"), std::string::npos) << answer.text;
  }
  EXPECT_EQ(clients_.arena_bytes(), 24 * kUnit) << "half of what is for everyone";
  const auto modest = other_process(5 * kUnit);
  EXPECT_EQ(receive(modest->connection).kind, wire::ControlKind::kPath);
  greedy.clear();
  serve();
  UniqueFd again = connect();
  attach_arenas(again, 9 * kUnit);
  EXPECT_EQ(receive(again).kind, wire::ControlKind::kPath) << "nothing is left of its connections";
}

TEST_F(ClientArenasTest, WhoIsRefusedHearsWhatWouldFit) {
  const auto large = other_process(12 * kUnit);
  EXPECT_EQ(receive(large->connection).kind, wire::ControlKind::kPath);
  const auto second = other_process(12 * kUnit);
  const wire::ControlMessage refusal = receive(second->connection);
  EXPECT_EQ(refusal.kind, wire::ControlKind::kRefused);
  EXPECT_EQ(refusal.b, 3 * kUnit) << "for both arenas: a quarter of the 12 that it may have, half of what is left of 48";
  const auto third = other_process(refusal.b / 2);
  EXPECT_EQ(receive(third->connection).kind, wire::ControlKind::kPath);
}

// Each with the arenas that libshoal reserves.
TEST_F(ClientsTest, AllPlacesHaveRoomForArenasWithTheDefaultLimits) {
  const FairShare share{.total = static_cast<std::uint64_t>(ClientLimits().total_arena_gb) << 30,
                        .clients = Clients::kMaxClients};
  constexpr std::uint64_t kBoth = 2 * wire::kLargestArenaBytes;
  std::uint64_t used = 0, of_one = 0;
  for (std::size_t i = 0; i < Clients::kMaxClients; ++i, used += kBoth)
    ASSERT_TRUE(share.fits(used, 0, kBoth)) << i << " processes with a connection each";
  for (std::size_t i = 0; i < Clients::kMaxClients / 4 * 3; ++i, of_one += kBoth)
    ASSERT_TRUE(share.fits(of_one, of_one, kBoth)) << i << " connections of one process";
}

TEST_F(ClientArenasTest, ArenasHaveAtMostHalfOfTheAddressesThatAProcessMayUse) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer has more addresses than the limit";
#endif
  EXPECT_EQ(test::exit_code_of([&] {
              const rlimit addresses{256 * kUnit, 256 * kUnit};
              if (::setrlimit(RLIMIT_AS, &addresses) != 0) return 1;
              clients_.limit_arenas(0);
              const auto greedy = other_process(32 * kUnit), modest = other_process(20 * kUnit);
              return receive(greedy->connection).kind == wire::ControlKind::kRefused &&
                             receive(modest->connection).kind == wire::ControlKind::kPath
                         ? 0
                         : 2;
            }),
            0);
}

/// A client with arenas of 1 MiB, of which the first half is allocated.
class AllocatedArenasTest : public ClientArenasTest {
 protected:
  static constexpr std::uint64_t kSize = 1 << 20, kHalf = kSize / 2;
  AllocatedArenasTest() {
    for (Segment* mapped : {&input_, &output_}) mapped->populate(0, kHalf);
    wire::ControlMessage message = hello();
    for (const UniqueFd* fd : {&input_fd_, &output_fd_}) message.fds.push_back(duplicate_fd(fd->get()).value());
    EXPECT_TRUE(seal(input_fd_, Seals::kOneWriter).ok() && seal(output_fd_, Seals::kFixedSize).ok());
    EXPECT_TRUE(wire::send_control(socket_.get(), message).ok());
    serve();
    EXPECT_EQ(receive(socket_).kind, wire::ControlKind::kPath);
    client_ = clients_.find(1);
  }
  Status check(std::uint64_t input_end, std::uint64_t output_end = 0) {
    return clients_.check_allocated(*client_, input_end, output_end);
  }

  const UniqueFd input_fd_ = reserve_memfd("input", kSize).value(), output_fd_ = reserve_memfd("output", kSize).value();
  Segment input_ = Segment::map(input_fd_, Segment::Access::kReadWrite).value();
  Segment output_ = Segment::map(output_fd_, Segment::Access::kReadWrite).value();
  UniqueFd socket_ = connect();
  Client* client_ = nullptr;
};

TEST_F(AllocatedArenasTest, WhatIsAllocatedMayBeNamedAndIsKnownFromThenOn) {
  EXPECT_TRUE(check(100).ok());
  EXPECT_EQ(client_->input_allocated, kHalf) << "the look goes further than what is named";
  EXPECT_TRUE(check(kHalf, kHalf).ok());
  EXPECT_EQ(client_->output_allocated, kHalf);
  EXPECT_EQ(clients_.allocated_arena_bytes(), kSize);
  const std::uint64_t looked_ns = client_->process->arena_looks.next_ns();
  EXPECT_TRUE(check(kHalf, kHalf).ok());
  EXPECT_EQ(client_->process->arena_looks.next_ns(), looked_ns) << "the kernel is not asked again";
  input_.populate(kHalf, kHalf);
  EXPECT_TRUE(check(kSize).ok()) << "it has grown";
  ::shutdown(socket_.get(), SHUT_RDWR);
  serve();
  EXPECT_EQ(clients_.allocated_arena_bytes(), 0u);
}

TEST_F(AllocatedArenasTest, AHoleAtTheEndOfWhatIsNamedIsRefused) {
  const Status refused = check(kHalf + 1);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(refused.message().find("input arena") != std::string::npos && refused.message().find("524288") != std::string::npos)
      << refused.message();
  EXPECT_EQ(client_->input_allocated, kHalf) << "what was seen is known";
  EXPECT_EQ(check(0, kHalf + 1).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(check(kHalf, kHalf).ok());
}

TEST_F(AllocatedArenasTest, AHoleBeforeWhatIsNamedIsRefusedAndOneBehindItIsNot) {
  input_.populate(kHalf + 4096, kHalf - 4096);
  EXPECT_TRUE(check(kHalf).ok());
  EXPECT_EQ(check(kSize).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->input_allocated, kHalf);
  input_.populate(kHalf, 4096);
  EXPECT_TRUE(check(kSize).ok());
}

TEST_F(AllocatedArenasTest, MemoryThatWasAllocatedAndNeverWrittenIsRefused) {
  ASSERT_TRUE(allocate(input_fd_, kHalf, kHalf).ok());
  EXPECT_EQ(check(kSize).code(), StatusCode::kInvalidArgument);
}

// A prefix of 256 MiB, named page by page.
TEST_F(ClientArenasTest, RequestsThatNameEverMoreCauseFewLooks) {
  const UniqueFd input = reserve_memfd("input", 4 * kUnit).value(), output = reserve_memfd("output", kUnit).value();
  Segment mapped = Segment::map(input, Segment::Access::kReadWrite).value();
  mapped.populate(0, 4 * kUnit);
  wire::ControlMessage message = hello();
  for (const UniqueFd* fd : {&input, &output}) message.fds.push_back(duplicate_fd(fd->get()).value());
  ASSERT_TRUE(seal(input, Seals::kOneWriter).ok() && seal(output, Seals::kFixedSize).ok());
  const UniqueFd socket = connect();
  ASSERT_TRUE(wire::send_control(socket.get(), message).ok());
  serve();
  Client& client = *clients_.find(1);
  int looks = 0;
  for (std::uint64_t end = 4096; end <= 4 * kUnit; end += 4096) {
    const std::uint64_t known = client.input_allocated;
    ASSERT_TRUE(clients_.check_allocated(client, end, 0).ok()) << end;
    looks += client.input_allocated != known;
  }
  EXPECT_LE(looks, 12);
}

// Its connections have one account.
TEST_F(AllocatedArenasTest, AProcessThatAsksAllTheTimeMustWait) {
  Status last;
  int asked = 0;
  for (; asked < 1'000'000 && last.code() != StatusCode::kOverloaded; ++asked) last = check(kSize);
  EXPECT_EQ(last.code(), StatusCode::kOverloaded);
  EXPECT_GT(asked, 100);  // some thousand; on a busy machine a look takes longer, and counts as more
  EXPECT_LT(asked, 100'000);
  EXPECT_GT(clients_.look_wait_ms(*client_), 0u);
  EXPECT_TRUE(check(client_->input_allocated).ok()) << "what is known needs no question";
}

// A client can delay a look by a lock of the kernel, however few pages it is about. 0.4 s are some 3 million pages.
TEST_F(AllocatedArenasTest, ALookThatTakesLongCountsAsAsManyPagesAsFitIntoTheTime) {
  look_takes_us = 400'000;
  EXPECT_TRUE(check(kHalf).ok());
  look_takes_us = 0;
  EXPECT_GT(clients_.look_cost(), 3'000'000u);
  EXPECT_GT(clients_.look_wait_ms(*client_), 1000u);
  EXPECT_EQ(check(0, kHalf).code(), StatusCode::kOverloaded);
}

TEST_F(AllocatedArenasTest, AProcessThatConnectsAnewHasTheRatesThatItHad) {
  client_->process->arena_looks.charge(10'000, 1000, monotonic_now_ns());
  client_->process->control_answers.charge(10'000, 1000, monotonic_now_ns());
  ::shutdown(socket_.get(), SHUT_RDWR);
  serve();
  EXPECT_EQ(clients_.count(), 0u);
  wire::ControlMessage message = hello();
  for (const UniqueFd* fd : {&input_fd_, &output_fd_}) message.fds.push_back(duplicate_fd(fd->get()).value());
  socket_ = connect();
  ASSERT_TRUE(wire::send_control(socket_.get(), message).ok());
  serve();
  client_ = clients_.find(2);
  ASSERT_NE(client_, nullptr);
  EXPECT_EQ(check(kHalf).code(), StatusCode::kOverloaded);
  EXPECT_GT(clients_.look_wait_ms(*client_), 5000u);
  EXPECT_GT(client_->process->control_answers.wait_ms(monotonic_now_ns()), 5000u);
  ::shutdown(socket_.get(), SHUT_RDWR);
  serve();
  int listed = 0;
  clients_.for_each_process([&](const ClientProcess&) { ++listed; });
  EXPECT_EQ(listed, 0) << "it has no connection";
  ASSERT_TRUE(timers_.next_ns().has_value());
  timers_.run_due(*timers_.next_ns() + 60'000'000'000);
  EXPECT_FALSE(timers_.next_ns().has_value()) << "nothing of it is kept for long";
}

TEST_F(ClientArenasTest, AllProcessesTogetherCauseLooksUpToOneLimit) {
  std::vector<std::unique_ptr<OtherProcess>> processes;
  for (int i = 0; i < 10; ++i) processes.push_back(other_process(kUnit / 2));
  is_everything_there = true;
  for (std::uint64_t id = 1; id <= 10; ++id) {
    Client& client = *clients_.find(id);
    for (Status last; last.code() != StatusCode::kOverloaded; client.input_allocated = 0) {
      last = clients_.check_allocated(client, kUnit / 2, 0);
      clients_.look_wait_ms(client);
    }
  }
  is_everything_there = false;
  EXPECT_LT(clients_.look_cost(), 5u << 20) << "8 GiB per second, in at most two seconds, and a little";
  EXPECT_GT(clients_.look_cost(), 1u << 19);
}

// So that a request that is sent again to the next daemon is not refused because its client has a large arena.
TEST_F(ClientArenasTest, ALargeArenaIsLookedAtForOneRequest) {
  clients_.limit_arenas(0);
  constexpr std::uint64_t kGiB = 1 << 30;
  const UniqueFd socket = connect();
  attach_arenas(socket, 3 * kGiB);
  is_everything_there = true;
  EXPECT_TRUE(clients_.check_allocated(*clients_.find(1), 3 * kGiB, 0).ok());
  is_everything_there = false;
}

// A lease (F_SETLEASE) makes open() wait up to 45 s.
TEST_F(ClientsTest, AnArenaWithALeaseIsRefusedAtOnce) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGIO, &ignore, &before), 0);
  const UniqueFd client = connect();
  wire::ControlMessage message = hello();
  UniqueFd input = create_memfd("test", 4096).value();
  ASSERT_TRUE(seal(input, Seals::kOneWriter).ok());
  message.fds.emplace_back(::open(format("/proc/self/fd/{}", input.get()).c_str(), O_RDWR | O_CLOEXEC));
  message.fds.push_back(create_memfd("test", 4096).value());
  ASSERT_TRUE(seal(message.fds[2], Seals::kFixedSize).ok());
  input.reset();
  ASSERT_EQ(::fcntl(message.fds[1].get(), F_SETLEASE, F_WRLCK), 0) << std::strerror(errno);
  ASSERT_TRUE(wire::send_control(client.get(), message).ok());
  const std::uint64_t begin_ns = monotonic_now_ns();
  serve();
  EXPECT_LT(monotonic_now_ns() - begin_ns, 10'000'000'000u);
  expect_refused(client, StatusCode::kInvalidArgument, "lease");
  ::sigaction(SIGIO, &before, nullptr);
}

}  // namespace
}  // namespace shoal::supervisor
