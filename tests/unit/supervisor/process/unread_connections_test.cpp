#include "supervisor/process/unread_connections.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "shm/base/unique_fd.hpp"
#include "tests/support/late_page.hpp"
#include "tests/support/tcp_connection.hpp"

namespace shoal::supervisor {
namespace {

using namespace std::chrono_literals;

using test::tcp_connection;

struct LocalConnection {
  UniqueFd mine, theirs;
};
LocalConnection local_connection() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

TEST(UnreadConnections, FindsNotedLocalConnectionsWithUnreadBytes) {
  const LocalConnection full = local_connection(), empty = local_connection(), strange = local_connection();
  note_connection(full.mine.get());
  note_connection(empty.mine.get());
  ASSERT_EQ(::send(full.theirs.get(), "x", 1, 0), 1);
  ASSERT_EQ(::send(strange.theirs.get(), "x", 1, 0), 1);
  const auto found = unread_connections();
  ASSERT_TRUE(found.contains(full.mine.get()));
  EXPECT_EQ(found.at(full.mine.get()), ::getpid());
  EXPECT_EQ(found.size(), 1u);
}

// The number may then be that of a socket that a stranger sent.
TEST(UnreadConnections, ForgetsAConnectionThatIsClosed) {
  constexpr int kNumber = 500;
  const auto full_connection_at = [](int number) {
    LocalConnection full = local_connection();
    EXPECT_EQ(::send(full.theirs.get(), "x", 1, 0), 1);
    full.mine.reset(::fcntl(full.mine.get(), F_DUPFD_CLOEXEC, number));
    EXPECT_EQ(full.mine.get(), number);
    return full;
  };
  {
    const LocalConnection noted = full_connection_at(kNumber);
    note_connection(kNumber);
    ASSERT_TRUE(unread_connections().contains(kNumber));
  }
  ASSERT_FALSE(unread_connections().contains(kNumber));
  const LocalConnection strange = full_connection_at(kNumber);
  EXPECT_FALSE(unread_connections().contains(kNumber));
}

// send() holds the lock of its connection while it waits for the bytes that it sends.
TEST(UnreadConnections, WaitsForNoStrangerWhoHoldsTheLockOfASocket) {
  test::LatePage page;
  if (!page.is_late()) GTEST_SKIP() << "this process may not use userfaultfd";
  UniqueFd other_end;
  const UniqueFd held = tcp_connection(other_end);
  note_connection(held.get());  // the number of a connection that is closed
  std::jthread stranger([&] { (void)!::send(held.get(), page.bytes(), test::LatePage::kBytes, 0); });
  ASSERT_TRUE(page.await_waiter());
  auto looked = std::async(std::launch::async, unread_connections);
  EXPECT_EQ(looked.wait_for(5s), std::future_status::ready) << "it waits for the stranger";
  EXPECT_TRUE(page.give());
}

}  // namespace
}  // namespace shoal::supervisor
