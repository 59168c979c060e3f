// The sockets that processes in the sandbox may make.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "shm/base/unique_fd.hpp"
#include "shm/wire/local_address.hpp"
#include "shm/wire/socket.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/landlock.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/worker/serve/sandbox_fixture.hpp"

namespace shoal::worker {
namespace {

// A datagram names its receiver in sendto(), so that connect() is not needed. AF_UNIX takes SOCK_RAW for SOCK_DGRAM.
TEST_F(SandboxTest, NobodySendsDatagrams) {
  for (const Who who : {Who::kLoadingZygote, Who::kZygote, Who::kWorker}) {
    for (const int type : {SOCK_DGRAM + 0, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, SOCK_RAW | SOCK_CLOEXEC}) {
      const int status = status_of([=] { return ::socket(AF_UNIX, type, 0); }, who);
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
          << "type " << type << " by " << static_cast<int>(who) << ": " << status;
    }
    EXPECT_EQ(status_of([] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) >= 0 ? 0 : 1; }, who), 0);
  }
}

/// 0, or why bind() failed.
int bind_there(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = wire::local_address(path);
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

// Clients trust the socket at the path where the daemon listens, if a process of the daemon's user has bound it.
TEST_F(SandboxTest, AWorkerBindsNothing) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path("attach");
  const int status = status_of([&] { return bind_there(path); });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
  EXPECT_FALSE(std::filesystem::exists(path));
  const int nameless = status_of([] { return ::listen(::socket(AF_UNIX, SOCK_STREAM, 0), 1) < 0 && errno == EINVAL ? 0 : 1; });
  EXPECT_EQ(nameless, 0) << "a socket without a name listens";
}

TEST_F(SandboxTest, AZygoteMakesSocketsWhereLanesListenAndNowhereElse) {
  if (test::landlock_version() < 1) GTEST_SKIP() << "this kernel has no Landlock";
  const test::ScratchDirectory cache, sockets, others;
  const auto bind_in_zygote = [&](const std::string& path) {
    return status_of([&] { return bind_there(path); }, Who::kLoadingZygote, cache.path(), sockets.path());
  };
  EXPECT_EQ(bind_in_zygote(sockets.path("w1-x-0")), 0);
  EXPECT_EQ(WEXITSTATUS(bind_in_zygote(others.path("socket"))), EACCES);
  EXPECT_EQ(WEXITSTATUS(bind_in_zygote(cache.path("socket"))), EACCES);
  EXPECT_EQ(WEXITSTATUS(status_of([&] { return bind_there(sockets.path("w1-x-1")); }, Who::kZygote)), EACCES);
}

// libzmq neither binds nor listens again when its peer has gone: the daemon may come twice.
TEST_F(SandboxTest, ALaneServesASecondPeer) {
  const test::ScratchDirectory directory;
  const std::string path = directory.path("w1-x-0");
  constexpr std::string_view kAsk = "x", kEnd = "end";
  const UniqueFd listens(::eventfd(0, EFD_CLOEXEC));
  const pid_t lane = test::start_child([&] {
    if (!enter_loading_sandbox({}, directory.path()).ok() || !enter_sandbox().ok()) return 90;  // as in the zygote
    UniqueFd bound = wire::make_local_socket(SOCK_STREAM).value();
    if (!wire::bind_at(bound.get(), path).ok()) return 91;
    if (!enter_worker_sandbox().ok()) return 92;
    wire::MessageContext context;
    wire::Dealer dealer = wire::Dealer::listen(context, std::move(bound)).value();
    (void)::eventfd_write(listens.get(), 1);  // as the worker says READY
    for (wire::Parcel parcel;;) {
      const auto got = dealer.receive(parcel, wire::Wait::kYes);
      if (!got.ok()) return 93;
      if (*got && parcel.head.size() == kEnd.size()) break;
      if (*got) (void)dealer.send(parcel.head, wire::Wait::kNo);  // nobody may be there to take it
    }
    dealer.close_after_flush(std::chrono::seconds(5));
    return 0;
  });
  pollfd ready{.fd = listens.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&ready, 1, 10'000), 1);
  wire::MessageContext context;
  for (wire::PeerId peer : {1u, 2u}) {
    wire::Router router = wire::Router::create(context).value();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const auto comes = [&](auto happens) {
      while (!happens() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::chrono::steady_clock::now() < limit;
    };
    ASSERT_TRUE(comes([&] { return router.connect(path, peer, false).ok(); })) << "peer " << peer;
    const auto sends = [&](std::string_view text) {
      const std::span<const std::byte> sent = std::as_bytes(std::span(text));
      return router.push(peer, wire::Frames(&sent, 1), {}).ok() && router.flush().empty();
    };
    // The lane learns later than we that its first peer has gone. Until then every other answer goes there and is lost.
    wire::PeerId from = 0;
    wire::Parcel parcel;
    ASSERT_TRUE(comes([&] { return sends(kAsk) && router.receive(from, parcel).value(); })) << "peer " << peer;
    if (peer == 2) {
      ASSERT_TRUE(comes([&] { return sends(kEnd); }));
    }
  }
  EXPECT_EQ(test::exit_code_of(lane), 0);
}

}  // namespace
}  // namespace shoal::worker
