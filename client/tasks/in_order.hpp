// Many requests, some of them under way at the same time, whose answers are taken in order.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "shm/base/errors.hpp"
#include "shoal/client.hpp"

namespace shoal::tasks {

// Enough to keep some workers busy while inputs are prepared; far below the limit of the daemon's queue.
inline constexpr std::size_t kRequestsUnderWay = 16;

/// Submits `count` requests and takes their answers in the same order. Stops at the first error; requests that are under way then
/// are canceled.
///   submit  std::size_t -> Result<Prediction>
///   take    std::size_t, const Tensors& -> Status
template <typename Submit, typename Take>
Status in_order(std::size_t count, const Submit& submit, const Take& take) {
  std::deque<Prediction> under_way;
  for (std::size_t submitted = 0, taken = 0; taken < count;) {
    if (submitted < count && under_way.size() < kRequestsUnderWay) {
      SHOAL_ASSIGN_OR_RETURN(Prediction prediction, submit(submitted));
      under_way.push_back(std::move(prediction));
      ++submitted;
      continue;
    }
    const Result<Tensors>& outputs = under_way.front().get();
    if (!outputs.ok()) return outputs.status();
    SHOAL_RETURN_IF_ERROR(take(taken, *outputs));
    under_way.pop_front();
    ++taken;
  }
  return {};
}

}  // namespace shoal::tasks
