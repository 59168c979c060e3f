// Every instruction of the functions in the list below is once the last that its process executes: real clients, workers,
// zygotes and supervisors, stopped there by ptrace and killed. After each kill those that live must not have noticed more than a
// death.
//   SHOAL_TEST_LONG=1  all of them also where each costs a start; else an even sample of those
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "tests/crash/step/scenarios.hpp"
#include "tests/support/checkpoint.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

struct Listed {
  const char* function;
  Part part;
  const char* reason;
};

constexpr Listed kList[] = {
    {"shoal::client::Arena::create", Part::kConnecting, "makes, maps and seals a memfd: half of that must vanish with its maker"},
    {"shoal::client::Connection::begin", Part::kConnecting, "hands both arenas over: they may arrive without their sender"},
    {"shoal::client::Connection::handle", Part::kConnecting, "binds its socket and says BOUND: the file must not stay"},
    {"shoal::client::Connection::receive_welcome", Part::kConnecting, "answers the welcome and unlinks its socket"},
    {"shoal::client::SlotAllocator::allocate", Part::kSubmitting,
     "free slots are known in its heap only: nobody has to repair them"},
    {"shoal::client::SlotAllocator::free", Part::kSubmitting, "as above"},
    {"shoal::client::PoolCore::send_request", Part::kSubmitting, "fills a slot and publishes it: a worker may read it meanwhile"},
    {"shoal::client::PoolCore::handle_reply", Part::kSubmitting, "takes an answer out of the arena that a worker wrote"},
    {"shoal::worker::Lane::answer", Part::kLane, "its status line says what runs before and after; one reply leaves"},
    {"shoal::worker::ArenaRegistry::find", Part::kLane, "holds a client's arenas while it runs"},
    {"shoal::worker::_::handle", Part::kCrash, "the crash record is evidence when it is complete, and nothing before"},
    {"shoal::worker::ArenaRegistry::attach", Part::kArrival, "maps a client's arenas from the control socket's descriptors"},
    {"shoal::worker::ArenaRegistry::detach", Part::kDeparture, "lets go of a client's arenas"},
    {"shoal::worker::Lane::send", Part::kBatch, "the first of two requests that ran as one is answered, the second is not yet"},
    {"shoal::wire::Dealer::bind", Part::kBirth, "makes its lane's socket: the file must not stay"},
    {"shoal::worker::Quarantine::replace", Part::kBirth, "takes the list of known poison before it has answered anything"},
    {"shoal::worker::WeightStore::seal", Part::kLoad, "packs, seals and publishes the weights: half of that is no weights"},
    {"shoal::worker::_::Zygote::fork_worker", Part::kZygote, "a worker may be born whose fork is never reported"},
    {"shoal::supervisor::Daemon::handle_request", Part::kSupervisor, "admits, queues and leases what a client sent"},
    {"shoal::supervisor::Daemon::send_to_lane", Part::kSupervisor, "arenas go out before the first request that names them"},
    {"shoal::supervisor::Daemon::handle_lane_message", Part::kSupervisor, "ends a lease and forwards the answer"},
    {"shoal::supervisor::Daemon::worker_died", Part::kSupervisorAtDeath, "takes back what a dead worker held"},
    {"shoal::supervisor::ModelProcesses::fork_worker", Part::kSupervisorAtDeath,
     "makes a worker's control socket and status page"},
    {"shoal::supervisor::ModelProcesses::zygote_speaks", Part::kSupervisorAtDeath,
     "a worker's pidfd comes by the zygote's control socket"},
    {"shoal::supervisor::ModelProcesses::worker_speaks", Part::kSupervisorAtDeath, "a worker says where its lanes listen"},
    {"shoal::supervisor::ModelProcesses::zygote_exited", Part::kSupervisorAtZygoteDeath, "lets go of what it had not reported"},
    {"shoal::supervisor::Clients::admit", Part::kSupervisorAtAttach, "takes a stranger in"},
    {"shoal::supervisor::Clients::handle_attach", Part::kSupervisorAtAttach, "checks its arenas' seals and keeps them"},
    {"shoal::supervisor::Clients::gone", Part::kSupervisorAtAttach, "what a client that is gone had under way"},
};

void PrintTo(const Listed& listed, std::ostream* out) { *out << listed.function << ": " << listed.reason; }

class StepTest : public testing::TestWithParam<Listed> {
 protected:
  StepTest() {
    // Else a zygote that is led already would execute itself once more.
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
    ::setenv("GOMP_SPINCOUNT", "1000", 1);
  }
};

TEST_P(StepTest, DeathAtAnyInstructionIsNoMoreThanADeath) {
  const ScratchDirectory models;
  const bool in_batches = GetParam().part == Part::kBatch;
  const ChainNode aborts{"_fault_abort", "abort0", {{"scalar", std::to_string(static_cast<int>(kTrigger))}}, {}},
      with_weights{"_fault_write_weight", "weigh0", {{"scalar", "-1"}}, {{"weight", {1, 2}}}},
      joins{"_mul_scalar", "times1", {{"scalar", "1"}}, {}};
  write_checkpoint(models.path(), "m", in_batches ? std::vector{joins} : std::vector{aborts, with_weights}, "[-1, 64]");
  {
    Served served({.models = {"echo=" + models.path() + (in_batches ? ",max_batch=2,max_delay_ms=1000" : "")},
                   .worker = "shoal-worker-faulty"},
                  in_batches ? 2 : 1);
    kill_everywhere(GetParam().function, *scenario_of(GetParam().part, served));
  }
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {  // guests
  }
}

INSTANTIATE_TEST_SUITE_P(, StepTest, testing::ValuesIn(kList), [](const auto& listed) {
  std::string name = std::string(listed.param.function).substr(std::string_view("shoal::").size());
  std::erase(name, ':');
  return name;
});

}  // namespace
}  // namespace shoal::test
