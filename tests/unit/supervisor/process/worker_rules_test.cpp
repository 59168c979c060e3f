// What a worker may not do.
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <functional>
#include <string>

#include "tests/unit/supervisor/process/model_processes_fixture.hpp"

namespace shoal::supervisor {
namespace {

TEST_F(ModelProcessesTest, WhatAWorkerSaysOutOfTurnEndsIt) {
  struct Breach {
    std::string why;
    std::function<void(const Fork&)> say;
  };
  const Breach breaches[] = {
      {"ready twice", [](const Fork& worker) { worker.say_ready(); }},
      {"a probe that was not sent",
       [](const Fork& worker) { worker.say({.kind = ControlKind::kProbed, .id = worker.incarnation}); }},
      {"with descriptors",
       [](const Fork& worker) { worker.say(with_fd({.kind = ControlKind::kProbed}, UniqueFd(::eventfd(0, EFD_CLOEXEC)))); }},
      {"a message of kind 14", [](const Fork& worker) { worker.say({.kind = ControlKind::kForked, .id = worker.incarnation}); }},
      {"too short", [](const Fork& worker) { EXPECT_EQ(::send(worker.control.get(), "x", 1, 0), 1); }},
  };
  for (const Breach& breach : breaches) {
    make();
    events_ = {};
    const Puppet zygote = start_loaded();
    const Fork worker = make_ready(zygote);
    breach.say(worker);
    ASSERT_TRUE(listen_until([&] { return !events_.ending.empty() || !events_.died.empty(); })) << breach.why;
    EXPECT_EQ(events_.ending, std::vector{worker.incarnation}) << "it must get no request before its death is known";
    ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); })) << breach.why;
    EXPECT_NE(events_.died[worker.incarnation].find(breach.why), std::string::npos) << events_.died[worker.incarnation];
    EXPECT_TRUE(events_.probed.empty());
    EXPECT_FALSE(zygote.is_dead());
  }
}

TEST_F(ModelProcessesTest, OnlyTheLanesOfAWorkerAreTakenFromIt) {
  const Puppet zygote = start_loaded();
  const Fork worker = zygote.fork_worker();
  worker.say({.kind = ControlKind::kReady, .id = worker.incarnation, .text = lane_path(worker.sockets, 0) + "0"});
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_NE(events_.died[worker.incarnation].find("ready with lane socket"), std::string::npos);
  EXPECT_TRUE(events_.ready.empty());
}

TEST_F(ModelProcessesTest, AProbeIsAnsweredOnce) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  ASSERT_TRUE(processes_->probe(worker.incarnation).ok());
  worker.say({.kind = ControlKind::kProbed, .id = 1});
  EXPECT_TRUE(listen_until([&] { return events_.probed.size() == 1; }));
  worker.say({.kind = ControlKind::kProbed, .id = 1});
  EXPECT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_EQ(events_.probed.size(), 1u);
}

TEST_F(ModelProcessesTest, AProbeThatALaterOneReplacedIsNotAnsweredAfterIt) {
  const Puppet zygote = start_loaded();
  const Fork worker = make_ready(zygote);
  for (const std::uint64_t number : {1, 2, 3}) {
    ASSERT_TRUE(processes_->probe(worker.incarnation).ok());
    EXPECT_EQ(wire::receive_control(worker.control.get()).value()->id, number);
  }
  worker.say({.kind = ControlKind::kProbed, .id = 1});  // was on its way when the others came
  EXPECT_TRUE(listen_until([&] { return events_.probed.size() == 1; }));
  EXPECT_EQ(processes_->find_worker(worker.incarnation)->probes, 2);
  worker.say({.kind = ControlKind::kProbed, .id = 3});
  EXPECT_TRUE(listen_until([&] { return events_.probed.size() == 2; }));
  EXPECT_EQ(processes_->find_worker(worker.incarnation)->probes, 0);
  worker.say({.kind = ControlKind::kProbed, .id = 2});
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_NE(events_.died[worker.incarnation].find("a probe that was not sent"), std::string::npos);
  EXPECT_EQ(events_.probed.size(), 2u);
}

// What breaks the rules before its fork is reported has no pidfd yet, and is killed as soon as it has one.
TEST_F(ModelProcessesTest, AWorkerThatBreaksTheRulesBeforeItsReportIsKilledWithIt) {
  const Puppet zygote = start_loaded();
  Fork worker = zygote.hear_fork();
  worker.say({.kind = ControlKind::kForked});
  pump();
  zygote.fork(worker);
  zygote.say_forked(worker);
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_NE(events_.died[worker.incarnation].find("a message of kind 14"), std::string::npos);
}

TEST_F(ModelProcessesTest, AWorkerThatHangsUpAndLivesOnIsKilled) {
  const Puppet zygote = start_loaded();
  Fork worker = make_ready(zygote);
  worker.control.reset();
  const auto is_silent = [&] { return next_ns() && *next_ns() < clock_.now_ns() + 2 * kSecondNs; };
  ASSERT_TRUE(listen_until(is_silent));
  EXPECT_TRUE(events_.died.empty()) << "it may be dying by itself";
  run_at(clock_.now_ns() + 2 * kSecondNs);
  ASSERT_TRUE(listen_until([&] { return events_.died.contains(worker.incarnation); }));
  EXPECT_EQ(events_.died[worker.incarnation], "closed its control socket and did not end");
}

}  // namespace
}  // namespace shoal::supervisor
