// SessionState: what a session keeps between two steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/status.hpp"
#include "shoal/tensor.hpp"

namespace shoal::client {

struct PendingRequest;

/// The core's mutex guards it, except for `model`, which never changes.
struct SessionState {
  struct Value {
    std::string in;  ///< the input of the model
    Tensor now;      ///< a slot of an input arena, which no worker can write
  };

  std::string model;
  std::vector<Value> values;  ///< in the model's order; empty: the next step begins with zeros
  /// Slots to which the answer of the next step is copied; then they change places with those of `values`. Whoever copies takes
  /// them out, because it does not hold the mutex.
  std::vector<Tensor> spare;
  std::weak_ptr<PendingRequest> step;                        ///< the last one
  std::uint64_t used_ns = 0;                                 ///< of PoolCore's idle_clock_ns_
  Status closed;                                             ///< why it is; OK while it is open
  std::list<std::shared_ptr<SessionState>>::iterator place;  ///< in the list of the open ones

  void forget() {
    values.clear();
    spare.clear();
  }
  /// The present value; null if there is none of that name.
  const Tensor* find(std::string_view in) const {
    const auto found = std::ranges::find(values, in, &Value::in);
    return found == values.end() ? nullptr : &found->now;
  }
};

}  // namespace shoal::client
