// SubmitOptions and Outcome: what a request asks for, and what it ends with.
#pragma once

#include <chrono>
#include <cstdint>

#include "shoal/options.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal {

struct SubmitOptions {
  StructSize<SubmitOptions> struct_size{};
  /// From now, for the whole path. 0 = the model's default; negative: the request fails at once.
  std::chrono::nanoseconds timeout{0};
  /// A higher one goes first among the requests of this Pool; others keep their turns. One above 0 from a client that has neither
  /// the role gateway nor operator (`[roles]` of the daemon) is kPermissionDenied.
  std::int8_t priority = 0;
  std::uint64_t version = 0;  ///< of the model; 0 = the default version, which is the highest
  /// For a gateway: whom the request is for, a number that it chooses. Each flow has the turns and limits that a client has, and
  /// statistics of its own. 0 = this Pool itself. Another number from a client without the role of a gateway (`[roles]` of the
  /// daemon) is kPermissionDenied. An Engine ignores it.
  std::uint64_t flow = 0;
};

/// The result of a request. A later release may add members. `ran` says whether the model may have run.
enum class Ran : std::uint8_t { kNo = 0, kMaybe = 1, kYes = 2 };
struct Outcome {
  Result<Tensors> outputs = Status(StatusCode::kInternal, "no outcome yet");
  Ran ran = Ran::kNo;
  std::uint16_t attempts = 0;       ///< number of runs that began
  std::uint16_t batch = 0;          ///< number of requests that ran together, including this one; 0 = not known
  std::uint64_t model_version = 0;  ///< the version that answered
  std::chrono::nanoseconds queue_time{0}, compute_time{0}, retry_after{0};
};

}  // namespace shoal
