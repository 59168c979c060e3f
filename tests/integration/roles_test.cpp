// Users of the daemon: who may attach, and what each may do. Real processes of other users.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "shm/base/format.hpp"
#include "tests/integration/raw_client.hpp"
#include "tests/integration/roles_fixture.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/says.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

TEST_F(RolesTest, ByDefaultOnlyTheDaemonsUserAndRootAttach) {
  const DaemonFixture daemon;
  const std::string refusal = as(kAlice, {kGroup}, [&] { return attach_and_predict(daemon.directory()); });
  EXPECT_TRUE(says(refusal, {"PERMISSION_DENIED", "user 64401", daemon.directory(), "socket_group"})) << refusal;
  struct stat info {};
  ASSERT_EQ(::stat(daemon.directory().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  // Even if the files let everybody in, the daemon does not.
  ASSERT_EQ(::chmod(daemon.directory().c_str(), 0755), 0);
  ASSERT_EQ(::chmod((daemon.directory() + "/attach").c_str(), 0666), 0);
  const std::string daemons = as(kAlice, {kGroup}, [&] { return attach_and_predict(daemon.directory()); });
  EXPECT_TRUE(says(daemons, {"PERMISSION_DENIED", "user 64401 may not use the daemon of user 0", "`socket_group`", "[roles]"}))
      << daemons;
  EXPECT_EQ(attach_and_predict(daemon.directory()), "OK");
}

TEST_F(RolesTest, AMemberOfTheSocketGroupPredicts) {
  const DaemonFixture daemon({.arguments = {"--socket-group", "64410"}});
  EXPECT_EQ(as(kAlice, {kGroup}, [&] { return attach_and_predict(daemon.directory()); }), "OK");
  EXPECT_EQ(as(kBob, {kOther, kGroup}, [&] { return attach_and_predict(daemon.directory()); }), "OK");
  const std::string stranger = as(kBob, {kOther}, [&] { return attach_and_predict(daemon.directory()); });
  EXPECT_TRUE(says(stranger, {"PERMISSION_DENIED", "socket_group"})) << stranger;
  EXPECT_EQ(attach_and_predict(daemon.directory()), "OK") << "root";
  // A large tensor travels in a frame, whose way is the same for all.
  EXPECT_EQ(as(kAlice, {kGroup},
               [&] {
                 auto pool = Pool::connect({.directory = daemon.directory(), .arena_limit_bytes = 4096});
                 return pool.ok() ? text_of(pool->predict("echo", {{"data", counting({100'000})}})) : text_of(pool.status());
               }),
            "OK");
}

// A daemon that starts makes its directory private at first.
TEST_F(RolesTest, AMembersRequestsWaitUntilTheNextDaemonHasSharedItsDirectory) {
  DaemonFixture daemon({.arguments = {"--socket-group", "64410"}});
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd next_serves(ends[0]), tell(ends[1]);
  ProcessOf alice(kAlice, {kGroup}, [&] {
    tell.reset();
    auto pool = Pool::connect({.directory = daemon.directory(), .reconnect_timeout = 30s});
    if (!pool.ok()) return text_of(pool.status());
    pollfd told{next_serves.get(), POLLIN, 0};
    std::string answer;
    do {
      answer = text_of(pool->predict("echo", {{"data", counting({4})}}));
    } while (answer == "OK" && ::poll(&told, 1, 0) == 0);
    return answer;
  });
  ASSERT_TRUE(eventually([&] { return daemon.model()["counts"]["ok"] > 0; }));
  ::kill(daemon.pid(), SIGKILL);
  EXPECT_EQ(daemon.wait_for_exit(), 128 + SIGKILL);
  std::this_thread::sleep_for(1100ms);  // longer than she waits at a directory that keeps her out
  ASSERT_EQ(::chmod(daemon.directory().c_str(), 0700), 0);
  daemon.start();
  tell.reset();
  EXPECT_EQ(alice.said(), "OK");
}

// Its pool has not tried to connect for a second when it meets the private directory.
TEST_F(RolesTest, AMemberWhosePoolWasIdleWaitsForTheNextDaemonToo) {
  DaemonFixture daemon({.arguments = {"--socket-group", "64410"}});
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd daemon_is_gone(ends[0]), tell(ends[1]);
  ProcessOf alice(kAlice, {kGroup}, [&] {
    tell.reset();
    auto pool = Pool::connect({.directory = daemon.directory(), .reconnect_timeout = 30s});
    if (!pool.ok() || predict(*pool) != "OK") return std::string("no daemon at first");
    pollfd told{daemon_is_gone.get(), POLLIN, 0};
    ::poll(&told, 1, -1);
    for (int look = 0; look < 5; ++look) {
      pool->poll_once();
      std::this_thread::sleep_for(10ms);
    }
    std::this_thread::sleep_for(1100ms);
    return predict(*pool);
  });
  ASSERT_TRUE(eventually([&] { return daemon.model()["counts"]["ok"] > 0; }));
  ::kill(daemon.pid(), SIGKILL);
  EXPECT_EQ(daemon.wait_for_exit(), 128 + SIGKILL);
  tell.reset();
  std::this_thread::sleep_for(300ms);
  ASSERT_EQ(::chmod(daemon.directory().c_str(), 0700), 0);
  std::this_thread::sleep_for(1000ms);
  daemon.start();
  EXPECT_EQ(alice.said(), "OK");
}

TEST_F(RolesTest, ADaemonOfAnotherUserServesItsGroup) {
  const DaemonFixture daemon(settings("socket_group = \"gid:64410\"\n", kDaemonUser, {kGroup}));
  const auto with_trust = [&] {
    ::setenv("SHOAL_DAEMON_USER", "64400", 1);
    return attach_and_predict(daemon.directory());
  };
  EXPECT_EQ(as(kAlice, {kGroup}, with_trust), "OK");
  EXPECT_EQ(as(kDaemonUser, {}, [&] { return attach_and_predict(daemon.directory()); }), "OK") << "the daemon's own user";
  EXPECT_EQ(attach_and_predict(daemon.directory()), "OK") << "root";
  const std::string careful = as(kAlice, {kGroup}, [&] { return attach_and_predict(daemon.directory()); });
  EXPECT_TRUE(says(careful, {"PERMISSION_DENIED", "user 64400", "SHOAL_DAEMON_USER=64400"})) << careful;
  const std::string stranger = as(kBob, {kOther}, with_trust);
  EXPECT_TRUE(says(stranger, {"PERMISSION_DENIED", "socket_group"})) << stranger;
}

TEST_F(RolesTest, AUserThatConnectsAgainAndAgainDelaysOnlyItself) {
  const DaemonFixture daemon(settings("socket_group = \"gid:64410\"\n[limits]\nconnection_rate = 20\n", kDaemonUser, {kGroup}));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd has_connected(ends[0]), say(ends[1]);
  // At 20 per second her connections are let in for 13 s. Who waits behind them gives up after 2 s.
  const ProcessOf alice(kAlice, {kGroup}, [&] {
    std::vector<UniqueFd> connections;
    for (int i = 0; i < 300; ++i)
      connections.push_back(connected_socket(daemon.directory() + "/attach", SOCK_SEQPACKET | SOCK_NONBLOCK));
    (void)!::write(say.get(), "x", 1);
    ::pause();
    return std::string();
  });
  char said = 0;
  ASSERT_EQ(::read(has_connected.get(), &said, 1), 1);
  const auto with_trust = [&] {
    ::setenv("SHOAL_DAEMON_USER", "64400", 1);
    return attach_and_predict(daemon.directory());
  };
  EXPECT_EQ(as(kBob, {kGroup}, with_trust), "OK");
  EXPECT_EQ(attach_and_predict(daemon.directory()), "OK") << "root";
}

TEST_F(RolesTest, AProcessInThousandsOfGroupsIsRefusedBeforeTheyAreRead) {
  const DaemonFixture daemon({.arguments = {"--socket-group", "64410"}});
  std::vector<gid_t> groups(2000, kOther);
  groups[0] = kGroup;
  const std::string refused = as(kAlice, groups, [&] { return attach_and_predict(daemon.directory()); });
  EXPECT_TRUE(says(refused, {"PERMISSION_DENIED", "user 64401", "2000 groups", "1024"})) << refused;
  groups.resize(1000);
  EXPECT_EQ(as(kAlice, groups, [&] { return attach_and_predict(daemon.directory()); }), "OK");
}

TEST_F(RolesTest, ADaemonThatMayNotLetTheGroupInSaysSo) {
  DaemonSettings bad = settings("socket_group = \"gid:64410\"\n", kDaemonUser, {kOther});
  bad.wait_until_ready = false;
  DaemonFixture daemon(bad);
  EXPECT_EQ(daemon.wait_for_exit(), 1);
  EXPECT_TRUE(says(daemon.log(), {"socket_group", "64410", "user 64400", "member"})) << daemon.log();
  const CommandResult unknown = run_shoald("--model a=builtin:identity --socket-group no-such-group", files_.path("none"));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(says(unknown.output, {"--socket-group", "'no-such-group'"})) << unknown.output;
}

/// All control requests, and what came of each: a line "WORD: OK" or "WORD: status".
std::string try_everything(const std::string& directory) {
  auto connected = Pool::connect({.directory = directory});
  if (!connected.ok()) return text_of(connected.status());
  Pool& pool = *connected;
  std::string lines;
  const auto add = [&](const std::string& word, const std::string& came) { lines += word + ": " + came + "\n"; };
  add("predict", predict(pool));
  add("describe", text_of(pool.describe("echo")));
  add("list", text_of(pool.list()));
  add("stats", text_of(pool.stats()));
  add("load", text_of(pool.load("more", "builtin:identity")));
  add("reload", text_of(pool.reload("more")));
  add("scale", text_of(pool.scale("more", 2)));
  add("drain", text_of(pool.drain("more")));
  add("unload", text_of(pool.unload("more")));
  add("crashes", text_of(pool.crashes()));
  add("trace", text_of(pool.trace()));
  return lines;
}
constexpr const char* kOperatorsWords[] = {"load", "reload", "scale", "drain", "unload", "crashes", "trace"};

TEST_F(RolesTest, OnlyAnOperatorChangesAndLooksClosely) {
  DaemonFixture daemon(settings(usual_));
  const auto everything = [&] { return try_everything(daemon.directory()); };
  const std::string users = as(kAlice, {kGroup}, everything), gateways = as(kGatewayUser, {kGroup}, everything);
  for (const std::string& said : {users, gateways}) {
    for (const char* word : {"predict", "describe", "list", "stats"})
      EXPECT_TRUE(contains(said, std::string(word) + ": OK")) << said;
    for (const std::string word : kOperatorsWords) {
      EXPECT_TRUE(contains(said, word + ": PERMISSION_DENIED")) << said;
      EXPECT_TRUE(contains(said, "'" + word + "' needs the role operator")) << said;
    }
    EXPECT_TRUE(contains(said, "as operator in [roles]")) << said;
  }
  EXPECT_TRUE(contains(users, "\"uid:64401\"") && contains(users, "has: user.")) << users;
  EXPECT_TRUE(contains(gateways, "has: user, gateway.")) << gateways;
  EXPECT_EQ(daemon.connect().list().value(), (std::vector<std::string>{"echo"})) << "nothing of it was done";

  const auto stop = [&] {
    auto pool = Pool::connect({.directory = daemon.directory()});
    return pool.ok() ? text_of(pool->stop()) : text_of(pool.status());
  };
  const std::string refusal = as(kAlice, {kGroup}, stop);
  EXPECT_TRUE(says(refusal, {"PERMISSION_DENIED", "'stop'", "operator"})) << refusal;
  const std::string operators = as(kOperatorUser, {kGroup, kOperators}, everything);
  for (const std::string word : kOperatorsWords) EXPECT_TRUE(contains(operators, word + ": OK")) << operators;
  EXPECT_TRUE(is_alive(daemon.pid()));
  EXPECT_EQ(as(kOperatorUser, {kGroup, kOperators}, stop), "OK");
  EXPECT_EQ(daemon.wait_for_exit(), 0);
}

TEST_F(RolesTest, APriorityAboveNormalNeedsARole) {
  const DaemonFixture daemon(settings(usual_));
  const auto priorities = [&] {
    auto pool = Pool::connect({.directory = daemon.directory()});
    if (!pool.ok()) return text_of(pool.status());
    std::string lines;
    for (const std::int8_t priority : {-128, -1, 0, 1, 127}) lines += predict(*pool, priority) + "\n";
    return lines;
  };
  const std::string all_ok = "OK\nOK\nOK\nOK\nOK\n";
  const std::string users = as(kAlice, {kGroup}, priorities);
  EXPECT_TRUE(users.starts_with("OK\nOK\nOK\nPERMISSION_DENIED")) << users;
  EXPECT_TRUE(says(users, {"priority 1,", "priority 127,", "gateway or operator", "\"uid:64401\"", "[roles]"})) << users;
  EXPECT_EQ(as(kGatewayUser, {kGroup}, priorities), all_ok);
  EXPECT_EQ(as(kOperatorUser, {kGroup, kOperators}, priorities), all_ok);
  EXPECT_EQ(priorities(), all_ok) << "root";
}

TEST_F(RolesTest, OnlyAGatewaySendsFlows) {
  const DaemonFixture daemon(settings(usual_));
  const auto flow = [&] {
    RawClient client(daemon.directory());
    client.attach();
    std::string lines;
    for (const std::uint64_t number : {0, 7}) {
      wire::Request request = client.request(number + 2);
      request.header.flow = number;
      client.send(request);
      const wire::Reply reply = client.receive_reply();
      lines += format("status {} ran {}: ", reply.header.status, static_cast<int>(reply.header.ran));
      if (client.message().size() > 1) {
        const auto text = client.message()[1];
        lines.append(reinterpret_cast<const char*>(text.data()), text.size());
      }
      lines += "\n";
    }
    return lines;
  };
  const std::string users = as(kAlice, {kGroup}, flow), operators = as(kOperatorUser, {kGroup, kOperators}, flow);
  for (const std::string& said : {users, operators}) {
    EXPECT_TRUE(says(said, {"status 0 ran 2", "status 12 ran 0: a flow needs the role gateway", "[roles]"})) << said;
  }
  EXPECT_EQ(as(kGatewayUser, {kGroup}, flow), "status 0 ran 2: \nstatus 0 ran 2: \n");
}

TEST_F(RolesTest, UsersDoNotSeeWhatOtherClientsDo) {
  const DaemonFixture daemon(settings(usual_));
  const auto rows = [&] {
    auto pool = Pool::connect({.directory = daemon.directory()});
    if (!pool.ok()) return text_of(pool.status());
    const auto stats = nlohmann::json::parse(pool->stats().value());
    return format("{} flows, {} copying", stats["models"][0]["flows"].size(), stats["supervisor"]["copying"].size());
  };
  Pool busy = Pool::connect({.directory = daemon.directory(), .arena_limit_bytes = 4096}).value();
  ASSERT_TRUE(busy.submit("echo", {{"data", counting({100'000})}}, {.flow = 7}).outcome().outputs.ok());
  EXPECT_EQ(as(kAlice, {kGroup}, rows), "0 flows, 0 copying");
  for (const uid_t user : {kGatewayUser, kOperatorUser})
    EXPECT_EQ(as(user, {kGroup, user == kOperatorUser ? kOperators : kGroup}, rows), "1 flows, 1 copying");
}

/// The sockets below the daemon's directory whose name begins with that letter: w of a lane, c of a client that attaches.
std::vector<fs::path> sockets(const DaemonFixture& daemon, char letter) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(daemon.directory())) {
    if (entry.is_socket() && entry.path().filename().string()[0] == letter) found.push_back(entry.path());
  }
  return found;
}

// Even if the umask of whoever starts the daemon lets everybody in.
TEST_F(RolesTest, MembersReachOnlyTheAttachSocket) {
  const mode_t umask = ::umask(0);
  const DaemonFixture daemon({.arguments = {"--socket-group", "64410"}});
  ::umask(umask);
  ProcessOf alice(kAlice, {kGroup}, [&] {
    RawClient client(daemon.directory());
    const std::string path = client.attach_until_path();
    const UniqueFd listener = client.take_listener();
    ::pause();
    return path;
  });
  ASSERT_TRUE(eventually([&] { return !sockets(daemon, 'c').empty(); }));
  ASSERT_EQ(sockets(daemon, 'w').size(), 1u);
  const std::vector<fs::path> victims = {sockets(daemon, 'c')[0], sockets(daemon, 'w')[0]};
  for (const fs::path& victim : victims) {
    struct stat info {};
    ASSERT_EQ(::stat(victim.c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, 0u) << victim << " is the daemon's";
    EXPECT_EQ(info.st_mode & 0077, 0u) << victim;
  }
  const std::string bob = as(kBob, {kGroup}, [&] {
    std::string wrong;
    const std::string file = daemon.directory() + "/c1000";  // not used by the daemon
    if (::opendir(daemon.directory().c_str())) wrong += "lists the directory; ";
    if (bound_socket(file, SOCK_STREAM) || errno != EACCES) wrong += "binds in the directory; ";
    if (::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0) wrong += "makes files in the directory; ";
    for (const fs::path& victim : victims) {
      if (connected_socket(victim, SOCK_STREAM) || errno != EACCES) wrong += "connects to " + victim.string() + "; ";
      if (::unlink(victim.c_str()) == 0 || ::rename(victim.c_str(), file.c_str()) == 0) wrong += "removes a socket; ";
    }
    if (::unlink((daemon.directory() + "/attach").c_str()) == 0) wrong += "removes the attach socket; ";
    if (::open((daemon.directory() + "/lock").c_str(), O_RDONLY | O_CLOEXEC) >= 0) wrong += "opens the lock; ";
    if (!connected_socket(daemon.directory() + "/attach", SOCK_SEQPACKET)) wrong += "cannot attach; ";
    return wrong;
  });
  EXPECT_EQ(bob, "");
  alice.kill();
  EXPECT_TRUE(eventually([&] { return sockets(daemon, 'c').empty(); })) << "only the daemon can remove the file";
}

TEST_F(RolesTest, KilledMembersLeaveNothing) {
  const DaemonFixture daemon({.arguments = {"--socket-group", "64410"}});
  for (int i = 0; i < 20; ++i) {
    ProcessOf member(kAlice, {kGroup}, [&] {
      while (attach_and_predict(daemon.directory()) == "OK") {
      }
      return std::string("it failed");
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + i));  // at any instruction
    member.kill();
  }
  EXPECT_TRUE(eventually([&] { return sockets(daemon, 'c').empty(); }));
  EXPECT_TRUE(eventually([&] { return daemon.stats()["supervisor"]["clients"] == 1; })) << "the one that asks";
}

TEST_F(RolesTest, SighupChangesTheRolesOfClientsThatAreThere) {
  const DaemonFixture daemon(settings(usual_));
  const auto configure_again = [&](const std::string& text) {
    configure(text);
    ::kill(daemon.pid(), SIGHUP);
  };
  // Each waits, with one connection, until the answer begins with what it waits for.
  const auto wait_for = [&](const std::string& wanted) {
    return [&daemon, wanted] {
      auto pool = Pool::connect({.directory = daemon.directory(), .reconnect_timeout = 0s});
      if (!pool.ok()) return text_of(pool.status());
      std::string came;
      const auto first = text_of(pool->scale("echo", 1)) + " / ";
      eventually([&] {
        came = text_of(pool->scale("echo", 1));
        return came.starts_with(wanted);
      });
      return first + came;
    };
  };
  ProcessOf alice(kAlice, {kGroup}, wait_for("OK")), bob(kBob, {kGroup, kOperators}, wait_for("PERMISSION_DENIED"));
  ASSERT_TRUE(eventually([&] { return daemon.stats()["supervisor"]["clients"] == 3; }));
  std::this_thread::sleep_for(50ms);
  configure_again("socket_group = \"gid:64410\"\n[roles]\noperator = [\"uid:64401\"]\n");
  const std::string risen = alice.said(), fallen = bob.said();
  EXPECT_TRUE(contains(risen, "/ OK")) << risen;
  EXPECT_TRUE(fallen.starts_with("OK / PERMISSION_DENIED") && contains(fallen, "'scale' needs the role operator")) << fallen;

  // Without any role they are put out, and do not come back.
  const auto until_put_out = [&] {
    auto pool = Pool::connect({.directory = daemon.directory(), .reconnect_timeout = 0s});
    if (!pool.ok()) return text_of(pool.status());
    std::string came;
    eventually([&] {
      came = text_of(pool->list());
      return came != "OK";
    });
    return "first OK, then " + came;
  };
  ProcessOf named(kAlice, {kGroup}, until_put_out);
  ASSERT_TRUE(eventually([&] { return daemon.stats()["supervisor"]["clients"] == 2; }));
  std::this_thread::sleep_for(50ms);
  configure_again("socket_group = \"gid:64410\"\n[roles]\nnone = [\"uid:64401\"]\n");
  const std::string out = named.said();
  EXPECT_TRUE(out.starts_with("first OK, then ")) << out;
  EXPECT_TRUE(daemon.logs("`none` of [roles]"));
  const std::string back = as(kAlice, {kGroup}, [&] { return attach_and_predict(daemon.directory()); });
  EXPECT_TRUE(says(back, {"PERMISSION_DENIED", "user 64401", "`none`"})) << back;
  EXPECT_EQ(as(kBob, {kGroup}, [&] { return attach_and_predict(daemon.directory()); }), "OK");

  configure_again("socket_group = \"gid:64412\"\n");
  ASSERT_TRUE(eventually([&] { return as(kBob, {kOther}, [&] { return attach_and_predict(daemon.directory()); }) == "OK"; }));
  EXPECT_TRUE(contains(as(kBob, {kGroup}, [&] { return attach_and_predict(daemon.directory()); }), "PERMISSION_DENIED"));
  configure_again("[roles]\nuser = [\"no prefix\"]\n");
  EXPECT_TRUE(daemon.logs("configuration_refused")) << "and changes nothing";
  EXPECT_TRUE(contains(daemon.log(), "uid:N"));
  EXPECT_EQ(as(kBob, {kOther}, [&] { return attach_and_predict(daemon.directory()); }), "OK");
  configure_again("");
  ASSERT_TRUE(eventually([&] { return as(kBob, {kOther}, [&] { return attach_and_predict(daemon.directory()); }) != "OK"; }));
}

// A cleaner of /tmp has removed it, and the daemon has not made it anew yet.
TEST_F(RolesTest, SighupWithoutAnAttachSocketPutsNobodyOut) {
  const DaemonFixture daemon(settings(usual_));
  ProcessOf alice(kAlice, {kGroup}, [&] {
    auto pool = Pool::connect({.directory = daemon.directory(), .reconnect_timeout = 0s});
    if (!pool.ok()) return text_of(pool.status());
    std::string came;
    eventually(
        [&] {
          came = text_of(pool->list());
          return came != "OK";
        },
        3s);
    return came;
  });
  ASSERT_TRUE(eventually([&] { return daemon.stats()["supervisor"]["clients"] == 2; }));
  ASSERT_EQ(::unlink((daemon.directory() + "/attach").c_str()), 0);
  configure(usual_ + "user = [\"uid:64402\"]\n");
  ::kill(daemon.pid(), SIGHUP);
  EXPECT_TRUE(daemon.logs("attach_restored"));
  EXPECT_EQ(alice.said(), "OK");
  EXPECT_EQ(as(kAlice, {kGroup}, [&] { return attach_and_predict(daemon.directory()); }), "OK");
  EXPECT_FALSE(contains(daemon.log(), "socket_group_refused"));
}

}  // namespace
}  // namespace shoal::test
