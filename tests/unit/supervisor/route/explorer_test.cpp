// Tries every order of the events that may happen to a few requests. The search goes breadth first over the states of the ledger
// and of the world around it, with a death possible between any two steps, and checks every promise in every state. A broken
// promise is shown with the shortest sequence of events that leads to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <set>

#include "tests/unit/supervisor/route/explorer_transitions.hpp"
#include "tests/unit/supervisor/route/explorer_world.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// A hash table, with open addressing, of the hashes of the states that were reached.
class Reached {
 public:
  Reached() : table_(1 << 16) {}
  /// Returns false if the hash was there already.
  bool insert(std::uint64_t hash) {
    if (hash == 0) hash = 1;
    if ((count_ + 1) * 2 > table_.size()) grow();
    return put(hash);
  }

 private:
  bool put(std::uint64_t hash) {
    std::size_t at = hash & (table_.size() - 1);
    for (; table_[at] != 0; at = (at + 1) & (table_.size() - 1)) {
      if (table_[at] == hash) return false;
    }
    table_[at] = hash;
    ++count_;
    return true;
  }
  void grow() {
    const std::vector<std::uint64_t> old = std::exchange(table_, std::vector<std::uint64_t>(table_.size() * 2));
    count_ = 0;
    for (const std::uint64_t hash : old) {
      if (hash != 0) put(hash);
    }
  }

  std::vector<std::uint64_t> table_;
  std::size_t count_ = 0;
};

struct Found {
  std::size_t states = 0, steps = 0;
  std::string violation;  // the promise, then the events that lead to it
};

class Explorer {
 public:
  explicit Explorer(const Plan& plan, Sabotage sabotage = Sabotage::kNone)
      : start_(plan, sabotage), parent_(start_), world_(start_), next_(start_) {}

  Found explore(Coverage& coverage) {
    Found found;
    reached_.insert(start_.hash());
    nodes_.push_back({});
    std::vector<Event> events;
    for (std::size_t at = 0; at < nodes_.size(); ++at) {
      visit(at);
      world_.possible(events);
      for (const Event& event : events) {
        next_ = world_;
        next_.happen(event, &coverage);
        ++found.steps;
        if (!next_.violation().empty()) {
          found.violation = next_.violation() + ":\n" + way_to(at) + "  " + event.text() + "\n";
          found.states = nodes_.size();
          return found;
        }
        if (reached_.insert(next_.hash())) nodes_.push_back({static_cast<std::uint32_t>(at), event.packed()});
      }
    }
    found.states = nodes_.size();
    return found;
  }

 private:
  struct Node {
    std::uint32_t parent = 0;
    std::uint16_t event = 0;
  };
  // Makes world_ the world of a node. Worlds are not stored but replayed from the start. The parent is kept, because neighboring
  // nodes share it.
  void visit(std::size_t node) {
    if (node == 0) {
      world_ = start_;
      return;
    }
    if (nodes_[node].parent != parent_node_) {
      parent_node_ = nodes_[node].parent;
      parent_ = start_;
      for (const std::uint16_t event : events_to(parent_node_)) parent_.happen(Event::unpack(event), nullptr);
    }
    world_ = parent_;
    world_.happen(Event::unpack(nodes_[node].event), nullptr);
  }
  std::vector<std::uint16_t> events_to(std::size_t node) const {
    std::vector<std::uint16_t> events;
    for (; node != 0; node = nodes_[node].parent) events.push_back(nodes_[node].event);
    std::ranges::reverse(events);
    return events;
  }
  std::string way_to(std::size_t node) const {
    std::string text;
    for (const std::uint16_t event : events_to(node)) text += "  " + Event::unpack(event).text() + "\n";
    return text;
  }

  World start_, parent_, world_, next_;
  std::size_t parent_node_ = 0;
  std::vector<Node> nodes_;
  Reached reached_;
};

// Every plan has two clients, two workers and up to three requests. Its name says what it adds.
const std::vector<Plan>& plans() {
  const Plan::Submission plain{.client = 1}, other{.client = 2};
  const Plan::Submission joins{.client = 1, .joinable = true}, other_joins{.client = 2, .joinable = true};
  const Plan::Submission in_time{.client = 1, .timeout_ns = 6 * kMs};
  static const std::vector<Plan> kPlans = {
      {.name = "deaths and cancels",
       .requests = {plain, other, plain},
       .limits = {.queue_limit = 8},
       .lives = 4,
       .ticks = 0,
       .cancels = true,
       .lies = true},
      {.name = "deadlines, priorities, limits, dead clients",
       .requests = {in_time, other, {.client = 1, .priority = 1}},
       .limits = {.queue_limit = 2},
       .shares = {.in_flight = 2},
       .lives = 2,
       .ticks = 1,
       .clients_die = true,
       .parks = true},
      {.name = "batches that wait",
       .requests = {joins, other_joins, joins},
       .limits = {.queue_limit = 8, .max_batch = 3, .max_delay_ns = 5 * kMs},
       .lives = 4,
       .ticks = 1,
       .cancels = true},
      {.name = "batches of two, undelivered, parked",
       .requests = {joins, {.client = 2, .timeout_ns = 6 * kMs, .joinable = true}, joins},
       .limits = {.queue_limit = 8, .max_batch = 2},
       .lives = 2,
       .ticks = 1,
       .parks = true,
       .undelivered = true},
      {.name = "two lanes",
       .requests = {plain, other, plain},
       .limits = {.queue_limit = 8},
       .lanes = 2,
       .lives = 3,
       .ticks = 0,
       .cancels = true},
      {.name = "operators",
       .requests = {plain, other_joins, joins},
       .limits = {.queue_limit = 8, .max_batch = 2},
       .lives = 2,
       .ticks = 0,
       .parks = true,
       .operators = true},
      {.name = "fewer workers",
       .requests = {plain, other_joins, joins},
       .limits = {.queue_limit = 8, .max_batch = 2},
       .lives = 3,
       .ticks = 0,
       .dismisses = true},
      {.name = "two flows of a client",
       .requests = {{.client = 1, .flow = 5, .joinable = true}, other_joins, {.client = 1, .flow = 6, .joinable = true}},
       .limits = {.queue_limit = 8, .max_batch = 2},
       .shares = {.in_flight = 1},
       .lives = 3,
       .ticks = 0,
       .cancels = true,
       .clients_die = true},
      {.name = "breaker",
       .requests = {plain, {.client = 2, .timeout_ns = 1500 * kMs}, plain},
       .limits = {.queue_limit = 8},
       .lives = 3,
       .ticks = std::getenv("SHOAL_TEST_LONG") ? 3 : 2,
       .step_ns = 1000 * kMs,
       .shaky = true},
      {.name = "quarantine",
       .requests = {plain, other},
       .limits = {.queue_limit = 8},
       .lives = 5,
       .ticks = 1,
       .step_ns = ModelLimits{}.quarantine_ns},
  };
  return kPlans;
}

TEST(Explorer, NoOrderOfEventsBreaksAPromise) {
  Coverage coverage;
  std::size_t states = 0;
  for (const Plan& plan : plans()) {
    const auto start = std::chrono::steady_clock::now();
    const Found found = Explorer(plan).explore(coverage);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::cout << plan.name << ": " << found.states << " states, " << found.steps << " steps, " << took.count() << " s"
              << std::endl;
    if (!found.violation.empty()) ADD_FAILURE() << "in the plan '" << plan.name << "': " << found.violation;
    states += found.states;
  }
  EXPECT_GE(states, 1'000'000u);
  const std::vector<std::string> seen = coverage.texts();
  const std::set<std::string> known(std::begin(kTransitions), std::end(kTransitions)), reached(seen.begin(), seen.end());
  for (const std::string& line : known) {
    if (!reached.contains(line)) ADD_FAILURE() << "no plan reaches any more: \"" << line << "\"";
  }
  for (const std::string& line : reached) {
    if (!known.contains(line)) ADD_FAILURE() << "not in the list, is it meant to be?: \"" << line << "\"";
  }
}

// Puts bugs between the ledger and the world around it. Each one is found by the shortest sequence of events.
TEST(Explorer, ShowsTheShortestWayToABrokenPromise) {
  const auto way_to = [](Sabotage sabotage) {
    Coverage coverage;
    return Explorer(plans()[0], sabotage).explore(coverage).violation;
  };
  EXPECT_EQ(way_to(Sabotage::kForgetsReleases),
            "a request is forgotten before it is answered and released:\n"
            "  submit 0\n  worker starts\n  cancel 0\n  worker dies 0 (nothing said)\n");
  EXPECT_EQ(way_to(Sabotage::kAnswersTwice),
            "a request is answered twice:\n  submit 0\n  worker starts\n  begin 0\n  answer 0\n");
  EXPECT_EQ(way_to(Sabotage::kReleasesEarly),
            "slots are released while a lane uses them:\n  submit 0\n  worker starts\n  cancel 0\n");
}

}  // namespace
}  // namespace shoal::supervisor
