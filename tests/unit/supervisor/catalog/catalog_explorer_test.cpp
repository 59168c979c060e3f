// Tries every sequence of wishes, with the world going on between them a little, a lot or not at all. Whatever happens on the
// way, the model ends as the last wishes ask for.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tests/unit/supervisor/catalog/catalog_world.hpp"

namespace shoal::supervisor {
namespace {

// What the wishes so far ask for, one after the other.
struct Wanted {
  bool is_served = false, is_drained = false, is_configured = false;
  std::string path;
  std::optional<int> workers;

  std::string text() const {
    if (!is_served) return "";
    std::string text;
    for (std::size_t at = 0; at < path.size(); at += 3) text += format("{}{}x{} ", path[at], path[at + 1], workers.value_or(1));
    text.back() = '*';
    return text + (is_drained ? " drained" : "");
  }
};

struct NamedWish {
  std::string_view name;
  void (*ask)(CatalogWorld& world);
  void (*want)(Wanted& wanted);
};

constexpr auto kReloadOther = [](Wanted& wanted) {
  if (!wanted.is_served) return;
  wanted.path = "1b 2b";
  wanted.workers.reset();
  wanted.is_drained = false;
};
constexpr auto kOpen = [](Wanted& wanted) { wanted.is_drained = false; };

constexpr std::array kWishes = {
    NamedWish{"load 1a", [](CatalogWorld& world) { (void)world.load("1a"); },
              [](Wanted& wanted) {
                if (!wanted.is_served) wanted = {.is_served = true, .path = "1a"};
              }},
    NamedWish{"reload", [](CatalogWorld& world) { (void)world.reload(); }, kOpen},
    NamedWish{"reload 1b 2b", [](CatalogWorld& world) { (void)world.reload("1b 2b"); }, kReloadOther},
    NamedWish{"reload --force", [](CatalogWorld& world) { (void)world.force(); }, kOpen},
    NamedWish{"scale 2", [](CatalogWorld& world) { (void)world.scale(2); }, [](Wanted& wanted) { wanted.workers = 2; }},
    NamedWish{"scale 3", [](CatalogWorld& world) { (void)world.scale(3); }, [](Wanted& wanted) { wanted.workers = 3; }},
    NamedWish{"drain", [](CatalogWorld& world) { (void)world.drain(); },
              [](Wanted& wanted) { wanted.is_drained = wanted.is_served; }},
    NamedWish{"unload", [](CatalogWorld& world) { (void)world.unload(); }, [](Wanted& wanted) { wanted = {}; }},
    NamedWish{"SIGHUP 1c 2d", [](CatalogWorld& world) { world.configure("1c 2d"); },
              [](Wanted& wanted) {
                wanted = {.is_served = true, .is_drained = wanted.is_drained, .is_configured = true, .path = "1c 2d"};
              }},
    NamedWish{"SIGHUP", [](CatalogWorld& world) { world.configure({}); },
              [](Wanted& wanted) {
                if (wanted.is_configured) wanted = {};
              }},
};

// What happens between two wishes.
enum class Pause : std::uint8_t { kNone, kOneStep, kThreeSteps, kSettle, kFail, kStall };
constexpr std::array<std::string_view, 6> kPauses = {"", " .", " ...", " (settled)", " (something fails)", " (no memory)"};
using Pauses = std::vector<Pause>;

struct Move {
  std::uint8_t wish;
  Pause pause;
};

class Explorer {
 public:
  Explorer(std::size_t depth, Pauses pauses) : depth_(depth), pauses_(std::move(pauses)) {}

  void explore() { visit(); }
  std::size_t runs = 0;
  std::string failure;

 private:
  void visit() {
    if (moves_.size() == depth_) return;
    for (std::uint8_t wish = 0; wish < kWishes.size() && failure.empty(); ++wish) {
      for (const Pause pause : pauses_) {
        if (!failure.empty()) return;
        moves_.push_back({wish, pause});
        if (run() && failure.empty()) visit();
        moves_.pop_back();
      }
    }
  }

  // Returns whether this state was never reached before with as many wishes left.
  bool run() {
    ++runs;
    CatalogWorld world;
    Wanted wanted;
    for (const Move& move : moves_) {
      kWishes[move.wish].ask(world);
      if (wanted.is_served || move.wish == 0 || move.wish == 8) kWishes[move.wish].want(wanted);
      go_on(world, move.pause);
    }
    const std::string state =
        format("{} {} {} {} {}", depth_ - moves_.size(), world.state(), wanted.text(), wanted.is_configured, has_failed());
    if (!reached_.insert(state).second) return false;
    world.settle();
    check(world, wanted);
    return true;
  }

  static void go_on(CatalogWorld& world, Pause pause) {
    world.advance();
    if (pause == Pause::kSettle) return world.settle();
    if (pause == Pause::kFail) return static_cast<void>(world.fail_something());
    if (pause == Pause::kStall) return static_cast<void>(world.stall());
    const int steps = pause == Pause::kNone ? 0 : pause == Pause::kOneStep ? 1 : 3;
    for (int i = 0; i < steps && world.step(); ++i) continue;
  }

  void check(const CatalogWorld& world, const Wanted& wanted) {
    if (!world.broken_.empty())
      failure = world.broken_;
    else if (!has_failed() && world.served() != wanted.text())
      failure = format("'{}' is served instead of '{}'", world.served(), wanted.text());
    else if (has_failed() && !serves_what_is_in_force(world, !has_scaled()))
      failure = format("'{}' is served after a failure, and the keys in force are '{}'", world.served(),
                       world.catalog_.services().front()->request.path);
    else if (!world.waiting_.empty())
      failure = format("{} callers have no answer", world.waiting_.size());
    else if (world.catalog_.is_busy())
      failure = "something is under way that does not end";
    else if (!world.searches_.empty())
      failure = "a search goes on";
    if (failure.empty()) return;
    failure += ":";
    for (const Move& move : moves_)
      failure += format(" {}{};", kWishes[move.wish].name, kPauses[static_cast<std::size_t>(move.pause)]);
  }

  // Whatever has failed: each number serves once, with its files as the last change that succeeded has them.
  // The number of its workers, too, unless a `scale` failed as well: then it may be the one before.
  static bool serves_what_is_in_force(const CatalogWorld& world, bool counts_workers) {
    if (world.catalog_.services().empty()) return true;
    const Service& service = *world.catalog_.services().front();
    std::map<std::uint64_t, std::string> stamps;
    for (const VersionEntry& entry : CatalogWorld::entries_of(service.request)) stamps[entry.model.files.version] = entry.stamp;
    std::set<std::uint64_t> numbers;
    for (const auto& version : service.versions) {
      if (!version->serves()) continue;
      if (!numbers.insert(version->number()).second) return false;
      if (version->facts.has_failed) continue;
      if (!stamps.contains(version->number()) || stamps[version->number()] != version->entry.stamp) return false;
      if (!counts_workers) continue;
      if (world.processes_.at(version->id).wanted != service.request.overrides.workers.value_or(1)) return false;
    }
    return true;
  }

  bool has_scaled() const {
    return std::ranges::any_of(moves_, [](const Move& move) { return kWishes[move.wish].name.starts_with("scale"); });
  }

  bool has_failed() const {
    return std::ranges::any_of(moves_, [](const Move& move) { return move.pause >= Pause::kFail; });
  }

  std::size_t depth_;
  Pauses pauses_;
  std::vector<Move> moves_;
  std::unordered_set<std::string> reached_;
};

TEST(CatalogExplorer, EverySequenceOfWishesEndsAsTheLastOnesAskFor) {
  ::setenv("SHOAL_LOG", "off", 1);
  Explorer explorer(5, {Pause::kNone, Pause::kOneStep, Pause::kThreeSteps, Pause::kSettle});
  explorer.explore();
  EXPECT_EQ(explorer.failure, "");
  std::cout << explorer.runs << " runs\n";
  EXPECT_GT(explorer.runs, 10'000u);
}

TEST(CatalogExplorer, WhateverFailsEverybodyIsAnsweredAndNothingIsUnderWayForEver) {
  ::setenv("SHOAL_LOG", "off", 1);
  Explorer explorer(4, {Pause::kNone, Pause::kOneStep, Pause::kSettle, Pause::kFail, Pause::kStall});
  explorer.explore();
  EXPECT_EQ(explorer.failure, "");
  std::cout << explorer.runs << " runs\n";
  EXPECT_GT(explorer.runs, 10'000u);
}

}  // namespace
}  // namespace shoal::supervisor
