// Completion, Request and ControlCall: what the pool waits for.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "client/src/arena.hpp"
#include "client/src/description.hpp"
#include "shoal/runner.hpp"

namespace shoal::client {

inline constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();  ///< as the end of a wait: there is none

/// Something that becomes done once. Its result may be read by anybody who saw done() (acquire; pairs with the release in
/// set_done()).
class Completion {
 public:
  bool is_done() const { return done_.load(std::memory_order_acquire); }

 protected:
  void set_done() { done_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> done_{false};
};

/// One input of a request, where it will be read from: a slot of the input arena, or bytes of its own that travel as a frame.
struct RequestInput {
  TensorView view;
  std::shared_ptr<void> owner;  ///< the slot, or the memory
  bool in_arena = false;
  std::uint64_t offset = 0;
};

/// A model, or one version of it: what a description is of.
struct ModelKey {
  std::string name;
  std::uint64_t version = 0;  ///< 0 = the one that is served by default
  friend auto operator<=>(const ModelKey&, const ModelKey&) = default;
};

/// One request of this client, from submit() until its slots are released. Guarded by the core's mutex but for the outcome once
/// done.
struct Request : Completion {
  std::uint64_t seq = 0;
  ModelKey model;
  std::vector<TensorSpec> specs;     ///< of the inputs, as they were given
  std::vector<RequestInput> inputs;  ///< likewise
  SubmitOptions options;
  std::uint64_t deadline_ns = kForever;             ///< CLOCK_MONOTONIC; without one the model's default counts
  std::vector<std::shared_ptr<Slot>> output_slots;  ///< by output; null where none is offered
  std::uint64_t shape_key = 0;                      ///< of the input shapes: for learning output sizes
  std::shared_ptr<const Description> description;   ///< that it was sent by
  bool is_sent = false;
  bool is_cancelled = false;         ///< a CANCEL has left
  bool has_described_again = false;  ///< as its inputs did not fit, or the daemon said that the model's signature changed
  Outcome outcome;

  void complete(Outcome result) {
    outcome = std::move(result);
    set_done();
  }
  /// No worker will touch them any more; what the user holds of them stays his.
  void release_slots() {
    inputs.clear();
    output_slots.clear();
  }
};

/// One question of the control protocol.
struct ControlCall : Completion {
  std::uint64_t seq = 0;
  std::string json;
  bool is_sent = false;
  bool ends_daemon = false;           ///< losing the connection is the answer
  std::vector<std::byte> attachment;  ///< the frame behind the answer, if there was one
  Result<std::string> answer = Status(StatusCode::kInternal, "no answer yet");

  void complete(Result<std::string> result) {
    answer = std::move(result);
    set_done();
  }
};

}  // namespace shoal::client
