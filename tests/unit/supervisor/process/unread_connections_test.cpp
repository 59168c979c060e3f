#include "supervisor/process/unread_connections.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "shm/base/unique_fd.hpp"
#include "tests/support/late_page.hpp"

namespace shoal::supervisor {
namespace {

using namespace std::chrono_literals;

UniqueFd tcp_connection(UniqueFd& other_end) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_TRUE(::bind(listener.get(), any, size) == 0 && ::listen(listener.get(), 1) == 0);
  EXPECT_EQ(::getsockname(listener.get(), any, &size), 0);
  UniqueFd connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(connection.get(), any, size), 0);
  other_end.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return connection;
}

TEST(UnreadConnections, FindsLocalConnectionsWithUnreadBytes) {
  int full[2] = {-1, -1}, empty[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, full), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, empty), 0);
  const UniqueFd ends[] = {UniqueFd(full[0]), UniqueFd(full[1]), UniqueFd(empty[0]), UniqueFd(empty[1])};
  ASSERT_EQ(::send(full[0], "x", 1, 0), 1);
  const auto found = unread_connections();
  ASSERT_TRUE(found.contains(full[1]));
  EXPECT_EQ(found.at(full[1]), ::getpid());
  EXPECT_FALSE(found.contains(full[0]));
  EXPECT_FALSE(found.contains(empty[0]) || found.contains(empty[1]));
}

// send() holds the lock of its connection while it waits for the bytes that it sends.
TEST(UnreadConnections, WaitsForNoStrangerWhoHoldsTheLockOfASocket) {
  test::LatePage page;
  if (!page.is_late()) GTEST_SKIP() << "this process may not use userfaultfd";
  UniqueFd other_end;
  const UniqueFd held = tcp_connection(other_end);
  std::jthread stranger([&] { (void)!::send(held.get(), page.bytes(), test::LatePage::kBytes, 0); });
  ASSERT_TRUE(page.await_waiter());
  auto looked = std::async(std::launch::async, unread_connections);
  EXPECT_EQ(looked.wait_for(5s), std::future_status::ready) << "it waits for the stranger";
  EXPECT_TRUE(page.give());
}

}  // namespace
}  // namespace shoal::supervisor
