// Kills real clients, workers, zygotes and supervisors at every instruction of the functions in the list below. ptrace stops the
// process there. After each kill the survivors must see a death and nothing else: Scenario::after_death() checks that.
//   SHOAL_TEST_LONG=1  tries all instructions; otherwise a sample of those of long functions and where each kill needs a start
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
    {"shoal::client::Arena::create", Part::kConnecting,
     "makes, maps and seals a memfd: an unfinished one must vanish with its process"},
    {"shoal::client::Arena::add_step", Part::kConnecting, "allocates memory: a part that no request has named yet"},
    {"shoal::client::Connection::begin", Part::kConnecting, "sends both arenas: they may arrive after their sender has died"},
    {"shoal::client::Connection::handle", Part::kConnecting, "binds its socket and says BOUND: the file must not stay"},
    {"shoal::client::Connection::receive_welcome", Part::kConnecting, "answers the welcome and unlinks its socket"},
    {"shoal::client::SlotAllocator::allocate", Part::kSubmitting,
     "the free slots are known in its heap only, so nobody has to repair them"},
    {"shoal::client::SlotAllocator::free", Part::kSubmitting, "as above"},
    {"shoal::client::PoolCore::send_request", Part::kSubmitting, "fills a slot and publishes it: a worker may read it meanwhile"},
    {"shoal::client::PoolCore::handle_reply", Part::kSubmitting, "reads an answer from the arena that a worker wrote"},
    {"shoal::client::Arena::grow_and_take", Part::kGrowing, "allocates memory of an arena that workers have mapped"},
    {"shoal::client::PoolCore::finish", Part::kCommitting, "copies the state of a session, and keeps it"},
    {"shoal::client::PoolCore::keep_states", Part::kCommitting, "the old and the new state change places"},
    {"shoal::worker::Lane::answer", Part::kLane, "its status line says what runs; one reply is sent"},
    {"shoal::worker::ArenaRegistry::find", Part::kLane, "holds a client's arenas while it runs"},
    {"shoal::worker::_::handle", Part::kCrash, "the crash record counts as evidence only when it is complete"},
    {"shoal::worker::ArenaRegistry::attach", Part::kArrival, "maps a client's arenas from the control socket's descriptors"},
    {"shoal::worker::ArenaRegistry::detach", Part::kDeparture, "drops a client's arenas, which another thread unmaps"},
    {"shoal::worker::Lane::send", Part::kBatch, "the first of two requests that ran as one is answered, the second is not yet"},
    {"shoal::wire::bind_at", Part::kBirth, "makes its lane's socket: the file must not stay"},
    {"shoal::wire::Dealer::listen", Part::kBirth, "starts ZeroMQ's threads: the file must not stay"},
    {"shoal::worker::Quarantine::replace", Part::kBirth, "receives the list of known poison before it has answered anything"},
    {"shoal::worker::WeightStore::seal", Part::kLoad,
     "packs, seals and publishes the weights: unfinished weights must not be used"},
    {"shoal::worker::_::Zygote::fork_worker", Part::kZygote, "a worker may be born whose fork is never reported"},
    {"shoal::supervisor::DataPlane::handle_request", Part::kSupervisor, "admits, queues and leases what a client sent"},
    {"shoal::supervisor::DataPlane::send_to_lane", Part::kSupervisor, "arenas go out before the first request that names them"},
    {"shoal::supervisor::DataPlane::handle_lane_message", Part::kSupervisor, "ends a lease and forwards the answer"},
    {"shoal::supervisor::DataPlane::worker_died", Part::kSupervisorAtDeath, "takes back the requests of a dead worker"},
    {"shoal::supervisor::ModelProcesses::fork_worker", Part::kSupervisorAtDeath,
     "makes a worker's control socket and status page"},
    {"shoal::supervisor::ModelProcesses::zygote_speaks", Part::kSupervisorAtDeath,
     "receives a worker's pidfd on the zygote's control socket"},
    {"shoal::supervisor::ModelProcesses::worker_speaks", Part::kSupervisorAtDeath, "a worker says where its lanes listen"},
    {"shoal::supervisor::ModelProcesses::zygote_exited", Part::kSupervisorAtZygoteDeath,
     "forgets the workers that the zygote had not reported"},
    {"shoal::supervisor::Clients::admit", Part::kSupervisorAtAttach, "accepts a new client"},
    {"shoal::supervisor::Clients::handle_attach", Part::kSupervisorAtAttach, "checks its arenas' seals and keeps them"},
    {"shoal::supervisor::Clients::gone", Part::kSupervisorAtAttach, "drops the requests of a client that is gone"},
};

void PrintTo(const Listed& listed, std::ostream* out) { *out << listed.function << ": " << listed.reason; }

class StepTest : public testing::TestWithParam<Listed> {
 protected:
  StepTest() {
    // So that a zygote does not execute itself once more (passive_openmp.hpp) while it is traced from its birth on.
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
    ::setenv("GOMP_SPINCOUNT", "1000", 1);
  }
};

TEST_P(StepTest, ADeathAtAnyInstructionHarmsNobodyElse) {
  const ScratchDirectory models;
  const bool in_batches = GetParam().part == Part::kBatch;
  // A lane keeps quick answers for a moment. A batch is so large that it is never quick, so that each walk takes the same way.
  const std::int64_t columns = in_batches ? 1 << 20 : 64;
  const ChainNode aborts{"_fault_abort", "abort0", {{"scalar", std::to_string(static_cast<int>(kTrigger))}}, {}},
      with_weights{"_fault_write_weight", "weigh0", {{"scalar", "-1"}}, {{"weight", {1, 2}}}},
      joins{"_mul_scalar", "times1", {{"scalar", "1"}}, {}};
  write_checkpoint(models.path(), "m", in_batches ? std::vector{joins} : std::vector{aborts, with_weights},
                   "[-1, " + std::to_string(columns) + "]");
  std::vector<std::string> arguments{"echo=" + models.path() + (in_batches ? ",max_batch=2,max_delay_ms=1000" : "")};
  if (GetParam().part == Part::kCommitting) {
    write_sum(models.path("sum"));
    arguments.push_back("sum=" + models.path("sum"));
  }
  {
    Served served({.models = arguments, .worker = "shoal-worker-faulty"}, in_batches ? 2 : 1, columns);
    const Walk walk = kill_everywhere(GetParam().function, *scenario_of(GetParam().part, served));
    EXPECT_GT(walk.instructions, 5u);
    EXPECT_EQ(walk.kills, walk.planned);
    EXPECT_LT(walk.elsewhere, walk.kills / 4 + 2) << "most kills should fall where they were meant to";
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
