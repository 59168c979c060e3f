// shoal-crash-client DIRECTORY HISTORY WORD...: sends requests as the words say (plan.hpp: to_words()) and writes requests and
// answers to HISTORY. At SIGTERM it finishes the requests under way and ends. client.c and client.py do the same in C and Python.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <deque>
#include <iostream>
#include <random>

#include "shm/base/clock.hpp"
#include "shoal/pool.hpp"
#include "tests/crash/driver/plan.hpp"

namespace shoal::test {
namespace {

constexpr auto kLook = std::chrono::milliseconds(5);  // how long it waits for an answer at once
constexpr std::uint64_t kTurnNs = 15'000'000;         // a turn of the loop that takes longer was delayed

volatile sig_atomic_t is_over = 0;

class Client {
 public:
  Client(Pool pool, const std::filesystem::path& history, const ClientPlan& plan, PatternModels models)
      : pool_(std::move(pool)), history_(history), plan_(plan), models_(std::move(models)), random_(plan.seed) {}

  void run() {
    last_turn_ns_ = monotonic_now_ns();
    while (!is_over || !under_way_.empty()) {
      while (!is_over && under_way_.size() < static_cast<std::size_t>(plan_.window)) ask();
      write_answers();
      if (!under_way_.empty()) under_way_.front().prediction.wait_for(kLook);
      const std::uint64_t now_ns = monotonic_now_ns();
      stalled_ns_ += now_ns - last_turn_ns_ > kTurnNs ? now_ns - last_turn_ns_ - kTurnNs : 0;
      last_turn_ns_ = now_ns;
    }
    history_.add(Ended{});
  }

 private:
  struct UnderWay {
    Asked asked;
    Prediction prediction;
    std::uint64_t stalled_before_ns;
  };

  bool chance(double share) { return static_cast<double>(random_()) < share * 0x1p32; }

  void ask() {
    const auto model = std::next(models_.begin(), static_cast<std::ptrdiff_t>(random_() % models_.size()));
    Asked asked{.id = ++last_id_, .question = random_question(model->first, model->second, random_)};
    if (chance(plan_.deadline_share)) asked.timeout_ns = plan_.timeout_ms * 1'000'000;
    if (chance(plan_.cancel_share)) asked.how = How::kCancel;
    if (model->second.inputs == PatternModel::Inputs::kRows && chance(plan_.guilty_share)) asked.how = How::kGuilty;
    const Tensor input = pattern_input(model->second, asked.question, asked.how);
    asked.time_ns = monotonic_now_ns();
    history_.add(asked);
    under_way_.push_back(
        {asked, pool_.submit(asked.question.model, {{"data", input}}, {.timeout = std::chrono::nanoseconds(asked.timeout_ns)}),
         stalled_ns_});
    if (asked.how == How::kCancel) under_way_.back().prediction.cancel();
  }

  void write_answers() {
    std::erase_if(under_way_, [&](const UnderWay& request) {
      if (!request.prediction.ready()) return false;
      const Outcome& outcome = request.prediction.outcome();
      const Status status = outcome.outputs.status();
      if (status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kInternal ||
          status.code() == StatusCode::kAborted)
        std::cerr << "client " << ::getpid() << ": " << status.to_string() << std::endl;  // the history has only the status code
      history_.add(Answered{.id = request.asked.id,
                            .time_ns = monotonic_now_ns(),
                            .status = static_cast<int>(outcome.outputs.status().code()),
                            .version = outcome.model_version,
                            .hash = outcome.outputs.ok() ? hash_of(outcome.outputs->front().tensor) : 0,
                            .attempts = outcome.attempts,
                            .stalled_ns = stalled_ns_ + since_turn() - request.stalled_before_ns});
      return true;
    });
  }

  // How much longer than kTurnNs the current turn has taken so far.
  std::uint64_t since_turn() const {
    const std::uint64_t turn_ns = monotonic_now_ns() - last_turn_ns_;
    return turn_ns > kTurnNs ? turn_ns - kTurnNs : 0;
  }

  Pool pool_;
  HistoryWriter history_;
  ClientPlan plan_;
  PatternModels models_;
  std::mt19937 random_;
  std::deque<UnderWay> under_way_;
  std::uint64_t last_id_ = 0, last_turn_ns_ = 0, stalled_ns_ = 0;
};

int run(std::span<char* const> arguments) {
  struct sigaction action {};
  action.sa_handler = [](int) { is_over = 1; };
  ::sigaction(SIGTERM, &action, nullptr);
  // Small arenas, so that slots are used again and again and some tensors travel as frames.
  const PoolOptions options{.directory = arguments[1],
                            .arena_limit_bytes = 192 << 10,
                            .connect_timeout = std::chrono::seconds(20),
                            .control_timeout = std::chrono::seconds(20)};
  auto pool = Pool::connect(options);
  // The driver stops clients with SIGSTOP, and a stopped client fails its handshake. So it tries again.
  for (int i = 0; i < 10 && !pool.ok() && pool.status().code() == StatusCode::kUnavailable; ++i) pool = Pool::connect(options);
  if (!pool.ok()) {
    std::cerr << "client " << ::getpid() << ": " << pool.status().to_string() << std::endl;
    return 1;
  }
  const auto words = arguments.subspan(3);
  Client client(*std::move(pool), arguments[2], client_plan_from(words), pattern_models_from(words));
  client.run();
  return 0;
}

}  // namespace
}  // namespace shoal::test

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a killed driver leaves no clients behind
  return argc > 9 ? shoal::test::run({argv, static_cast<std::size_t>(argc)}) : 2;
}
