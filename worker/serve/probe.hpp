// Probe: the stored input of a model as a request, and a judgement of the answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/result.hpp"
#include "worker/serve/job.hpp"

namespace shoal::worker {

/// The model's inputs as frames of a request that offers no slots, so that the outputs come back as frames.
///   Threads  thread-compatible
class ProbeRequest {
 public:
  explicit ProbeRequest(const GoldenCase& golden);
  Frames frames() const { return frames_; }

 private:
  std::vector<std::byte> head_;
  std::vector<std::span<const std::byte>> frames_;
};

/// Compares an answer with the golden case.
///   reply   the frames of the answer to ProbeRequest
///   Errors  the reply's own; kFailedPrecondition: names the wrong output, its worst element, both values
Status judge_probe(const ServedModelView& served, Frames reply);

}  // namespace shoal::worker
