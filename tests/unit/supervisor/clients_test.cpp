// Who may connect, how a client attaches, and how its connection ends.
#include "supervisor/plane/clients.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "shm/segment/segment.hpp"
#include "tests/support/no_descriptors.hpp"
#include "tests/unit/supervisor/clients_fixture.hpp"

namespace shoal::supervisor {
namespace {

namespace fs = std::filesystem;

TEST_F(ClientsTest, SilentClientsAreDisconnectedAFewAtATimeAndOthersAreNot) {
  UniqueFd speaking = attach();
  ASSERT_TRUE(wire::send_control(speaking.get(), {.kind = wire::ControlKind::kBound}).ok());
  serve();
  clients_.welcomed(*clients_.find(1));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect());
  for (int i = 0; i < 10; ++i) serve();
  ASSERT_EQ(clients_.count(), 101u);
  const std::uint64_t late_ns = monotonic_now_ns() + Clients::kHandshakeLimitNs;
  ASSERT_TRUE(timers_.next_ns().has_value());
  EXPECT_LE(*timers_.next_ns(), late_ns);
  for (std::size_t before = clients_.count(); before > 1; before = clients_.count()) {
    timers_.run_due(late_ns);
    ASSERT_LT(clients_.count(), before);
    ASSERT_GE(clients_.count() + 20, before);  // requests have their turn between
  }
  EXPECT_FALSE(timers_.next_ns().has_value());
  EXPECT_NE(clients_.find(1), nullptr);
  for (const UniqueFd& one : silent) expect_refused(one, StatusCode::kUnavailable, "no ATTACH within 2 s");
}

TEST_F(ClientsTest, AClientHearsItWhenTheDaemonHasNoDescriptorsLeft) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "UndefinedBehaviorSanitizer looks at objects through a pipe, and says they are none when it gets no descriptors";
#endif
  const UniqueFd first = connect(), second = connect();  // both wait to be accepted
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{128, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<UniqueFd> all;
  while (UniqueFd one{::open("/dev/null", O_RDONLY | O_CLOEXEC)}) all.push_back(std::move(one));
  // The reserve is free again when another thread has closed the connection that took it.
  const auto serve_until_answered = [&](const UniqueFd& client) {
    for (int i = 0; i < 2'000 && !pollfd_is_readable(client.get()); ++i) {
      ::poll(nullptr, 0, 5);
      if (timers_.next_ns()) timers_.run_due(*timers_.next_ns());
      serve();
    }
  };
  for (const UniqueFd* client : {&first, &second}) {
    serve_until_answered(*client);
    expect_refused(*client, StatusCode::kUnavailable, "no file descriptors left");
  }
  EXPECT_EQ(clients_.count(), 0u);
  all.clear();
  const UniqueFd third = connect();
  EXPECT_TRUE(wire::send_control(third.get(), hello()).ok());
  serve_until_answered(third);
  EXPECT_EQ(receive(third).kind, wire::ControlKind::kPath);
  EXPECT_EQ(clients_.count(), 1u);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Neither the connection nor the reserve gets a descriptor. The loop must not turn round and round meanwhile.
TEST_F(ClientsTest, WithoutAnyDescriptorConnectionsWaitAndNothingSpins) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer needs descriptors";
#endif
  const UniqueFd client = connect();
  {
    const test::NoDescriptors none;
    for (int i = 0; i < 3; ++i) {
      serve();
      EXPECT_FALSE(pollfd_is_readable(loop_.fd())) << "the loop would spin";
      ASSERT_TRUE(timers_.next_ns().has_value()) << "it is tried again";
      EXPECT_GT(*timers_.next_ns(), monotonic_now_ns());
      timers_.run_due(*timers_.next_ns());
    }
  }
  serve();
  EXPECT_EQ(clients_.count(), 1u) << "it waited";
}

TEST_F(ClientsTest, ADaemonThatDrainsRefusesNewClientsWithItsReason) {
  clients_.refuse_new("the daemon is stopping");
  const UniqueFd client = connect();
  serve();
  expect_refused(client, StatusCode::kUnavailable, "the daemon is stopping");
}

TEST_F(ClientsTest, AClientThatDoesNotAttachInTimeIsDisconnected) {
  const UniqueFd client = connect();
  serve();
  ASSERT_TRUE(timers_.next_ns().has_value());
  timers_.run_due(*timers_.next_ns() - 1);
  EXPECT_EQ(clients_.count(), 1u);
  timers_.run_due(*timers_.next_ns());
  EXPECT_EQ(clients_.count(), 0u);
  expect_refused(client, StatusCode::kUnavailable, "no ATTACH within 2 s");
  EXPECT_FALSE(timers_.next_ns().has_value());
  EXPECT_EQ(observer_.forgotten, 1);
}

TEST_F(ClientsTest, TimeInWhichTheDaemonDidNotRunCountsForNoHandshake) {
  const UniqueFd client = connect();
  serve();
  const std::uint64_t limit_ns = timers_.next_ns().value();
  timers_.postpone(60'000'000'000);
  timers_.run_due(limit_ns + 59'000'000'000);
  EXPECT_EQ(clients_.count(), 1u);
  timers_.run_due(limit_ns + 60'000'000'000);
  EXPECT_EQ(clients_.count(), 0u);
}

TEST_F(ClientsTest, OneProcessCannotTakeAllPlaces) {
  clients_.limit_connections(8, 0);
  std::vector<UniqueFd> own;
  for (int i = 0; i < 6; ++i) own.push_back(attach());
  const UniqueFd surplus = connect();
  serve();
  expect_refused(surplus, StatusCode::kOverloaded, "this process has 6 of the 8 places");
  const OtherProcess first(directory_.attach_path()), second(directory_.attach_path());
  serve();
  EXPECT_EQ(clients_.count(), 8u);
}

TEST_F(ClientsTest, AConnectionThatOutlivesItsProcessIsRefused) {
  UniqueFd connection;
  {
    OtherProcess process(directory_.attach_path());
    connection = std::move(process.connection);
  }
  serve();
  expect_refused(connection, StatusCode::kUnavailable, "is gone");
  EXPECT_EQ(clients_.count(), 0u);
}

TEST_F(ClientsTest, ConnectingAndHangingUpTakesOthersNoTurn) {
  clients_.limit_connections(0, 10);  // after a pause 20
  for (int i = 0; i < 200; ++i) {
    connect();  // and hangs up
    serve();
  }
  const OtherProcess other(directory_.attach_path());
  serve();
  EXPECT_EQ(clients_.count(), 1u);
}

TEST_F(ClientsTest, MessagesOutOfTurnEndTheConnection) {
  const UniqueFd client = attach();
  ASSERT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kAttach}).ok());
  serve();
  expect_refused(client, StatusCode::kInvalidArgument, "unexpected message");
  EXPECT_EQ(clients_.count(), 0u);
}

TEST_F(ClientsTest, AClientThatCannotBeReachedAtItsPathIsDisconnectedWithTheReason) {
  observer_.bound = Status(StatusCode::kInternal, "connect: no such file");
  const UniqueFd client = attach();
  ASSERT_TRUE(wire::send_control(client.get(), {.kind = wire::ControlKind::kBound}).ok());
  serve();
  expect_refused(client, StatusCode::kInvalidArgument, "connect: no such file");
}

TEST_F(ClientsTest, ItsSocketMustBeOneThatTheDaemonCanBind) {
  const auto answer_to = [&](UniqueFd socket) {
    const UniqueFd client = connect();
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    message.fds.push_back(std::move(socket));
    EXPECT_TRUE(wire::send_control(client.get(), message).ok());
    serve();
    return receive(client);
  };
  const auto make = [](int domain, int type) { return UniqueFd(::socket(domain, type | SOCK_CLOEXEC, 0)); };
  EXPECT_EQ(answer_to(test::unbound_socket()).kind, wire::ControlKind::kPath);
  const auto refused = [&](UniqueFd socket, const std::string& why) {
    const wire::ControlMessage answer = answer_to(std::move(socket));
    EXPECT_EQ(answer.kind, wire::ControlKind::kRefused);
    EXPECT_NE(answer.text.find(why), std::string::npos) << answer.text;
  };
  refused(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), "unbound local socket");
  refused(make(AF_INET, SOCK_STREAM), "unbound local socket");
  refused(make(AF_UNIX, SOCK_DGRAM), "unbound local socket");
  refused(make(AF_UNIX, SOCK_SEQPACKET), "unbound local socket");
  refused(test::bound_socket(scratch_.path() + "/own", SOCK_STREAM), "unbound local socket");
  EXPECT_FALSE(fs::exists(directory_.client_path(6))) << "what it could not bind it did not make";
}

TEST_F(ClientsTest, TroubleWithItsOwnDirectoryIsNoOffenceOfTheClient) {
  for (std::uint64_t id = 1; id <= 20; ++id) {
    const UniqueFd in_the_way = test::bound_socket(directory_.client_path(id), SOCK_STREAM);
    const UniqueFd client = connect();
    ASSERT_TRUE(wire::send_control(client.get(), hello()).ok());
    serve();
    expect_refused(client, StatusCode::kOverloaded, directory_.client_path(id));
  }
}

// Each worker that serves it would try to map it and fail.
TEST_F(ClientsTest, AnOutputArenaThatNobodyCanWriteIsRefused) {
  const auto arena = [](Seals seals) {
    UniqueFd fd = create_memfd("arena", 4096).value();
    EXPECT_TRUE(seal(fd, seals).ok());
    return fd;
  };
  const auto answer_to = [&](UniqueFd output) {
    const UniqueFd client = connect();
    wire::ControlMessage message = hello();
    message.fds.push_back(arena(Seals::kOneWriter));
    message.fds.push_back(std::move(output));
    EXPECT_TRUE(wire::send_control(client.get(), message).ok());
    serve();
    return receive(client);
  };
  EXPECT_EQ(answer_to(arena(Seals::kFixedSize)).kind, wire::ControlKind::kPath);
  const auto is_refused = [&](UniqueFd output) {
    const wire::ControlMessage answer = answer_to(std::move(output));
    EXPECT_EQ(answer.kind, wire::ControlKind::kRefused);
    EXPECT_EQ(answer.a, static_cast<std::uint64_t>(StatusCode::kInvalidArgument));
    EXPECT_NE(answer.text.find("output arena"), std::string::npos) << answer.text;
  };
  is_refused(arena(Seals::kOneWriter));
  is_refused(reopen_read_only(arena(Seals::kFixedSize)).value());
}

TEST_F(ClientsTest, NewRulesHoldForClientsThatAreThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  constexpr uid_t kOther = 64321;
  AccessRules rules;
  rules.roles[static_cast<std::size_t>(Role::kOperator)].users = {kOther};
  clients_.set_access(rules);
  const UniqueFd own = attach();
  ASSERT_EQ(::chmod(scratch_.path().c_str(), 0711), 0);  // as if it were shared with that user
  ASSERT_EQ(::chmod(directory_.attach_path().c_str(), 0666), 0);
  ASSERT_EQ(::seteuid(kOther), 0);
  const UniqueFd other = connect();
  ASSERT_EQ(::seteuid(0), 0);
  serve();
  ASSERT_NE(clients_.find(2), nullptr);
  EXPECT_EQ(clients_.find(2)->roles, (RoleSet{Role::kUser, Role::kOperator}));
  EXPECT_EQ(clients_.find(1)->roles, RoleSet::all());
  rules.roles = {};
  rules.roles[static_cast<std::size_t>(Role::kGateway)].users = {kOther};
  clients_.set_access(rules);
  EXPECT_TRUE(clients_.find(2)->may(Role::kGateway) && !clients_.find(2)->may(Role::kOperator));
  clients_.set_access({});
  EXPECT_EQ(clients_.find(2), nullptr);
  expect_refused(other, StatusCode::kPermissionDenied, "user 64321 may not use the daemon of user 0");
  EXPECT_EQ(clients_.find(1)->roles, RoleSet::all());
  ASSERT_EQ(::seteuid(kOther), 0);
  const UniqueFd again = connect();
  ASSERT_EQ(::seteuid(0), 0);
  serve();
  expect_refused(again, StatusCode::kPermissionDenied, "socket_group");
}

TEST_F(ClientsTest, TheLastPlacesAreForRootAndNamedOperators) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as other users";
  constexpr uid_t kUser = 64321, kOperator = 64322;
  clients_.limit_connections(16, 0);
  AccessRules rules;
  rules.roles[static_cast<std::size_t>(Role::kUser)].users = {kUser};
  rules.roles[static_cast<std::size_t>(Role::kOperator)].users = {kOperator};
  clients_.set_access(rules);
  ASSERT_EQ(::chmod(scratch_.path().c_str(), 0711), 0);
  ASSERT_EQ(::chmod(directory_.attach_path().c_str(), 0666), 0);
  std::vector<std::unique_ptr<OtherProcess>> crowd;
  const auto come = [&](uid_t user) {
    EXPECT_EQ(::seteuid(user), 0);
    crowd.push_back(std::make_unique<OtherProcess>(directory_.attach_path()));
    EXPECT_EQ(::seteuid(0), 0);
    serve();
  };
  for (int i = 0; i < 15; ++i) come(kUser);
  EXPECT_EQ(clients_.count(), 15u);
  come(kUser);
  EXPECT_EQ(clients_.count(), 15u) << "the last of 16 is reserved";
  expect_refused(crowd.back()->connection, StatusCode::kOverloaded, "15 clients");
  come(kOperator);
  EXPECT_EQ(clients_.count(), 16u);
}

TEST_F(ClientsTest, TheFileOfItsSocketIsThereUntilItIsWelcomed) {
  UniqueFd first = attach(), second = attach();
  for (const int id : {1, 2}) EXPECT_TRUE(fs::is_socket(directory_.client_path(id))) << id;
  ASSERT_TRUE(wire::send_control(first.get(), {.kind = wire::ControlKind::kBound}).ok());
  serve();
  EXPECT_TRUE(fs::is_socket(directory_.client_path(1)));
  clients_.welcomed(*clients_.find(1));
  EXPECT_FALSE(fs::exists(directory_.client_path(1)));
  second.reset();
  serve();
  EXPECT_FALSE(fs::exists(directory_.client_path(2))) << "its client has died";
}

TEST_F(ClientsTest, AGoneClientStaysKnownUntilItsLastRequestIsOver) {
  UniqueFd socket = attach();
  ASSERT_TRUE(wire::send_control(socket.get(), {.kind = wire::ControlKind::kBound}).ok());
  serve();
  Client* client = clients_.find(1);
  ASSERT_NE(client, nullptr);
  clients_.welcomed(*client);
  EXPECT_EQ(client->state, Client::State::kReady);
  ++client->outstanding;
  socket.reset();
  serve();
  EXPECT_EQ(clients_.find(1), nullptr);
  EXPECT_EQ(observer_.gone, 1);
  EXPECT_EQ(observer_.forgotten, 0);
  clients_.release(1);
  EXPECT_EQ(observer_.forgotten, 1);
  EXPECT_EQ(clients_.count(), 0u);
}

}  // namespace
}  // namespace shoal::supervisor
