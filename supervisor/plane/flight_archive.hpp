// Status pages of workers that died: what their flight recorders hold can still be read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "shm/segment/segment.hpp"

namespace shoal::supervisor {

struct DeadPage {
  std::string model;
  std::uint64_t version = 0;
  pid_t pid = -1;
  std::uint64_t incarnation = 0;
  std::size_t lanes = 0;
  std::uint64_t died_ns = 0;
  Segment page;
};

/// The last kKeptPerModel of each model (all of its versions together), oldest first.
///   Threads  thread-bound
class FlightArchive {
 public:
  static constexpr std::size_t kKeptPerModel = 8;

  void keep(DeadPage dead) {
    std::size_t kept = 1;
    for (const DeadPage& other : pages_) kept += other.model == dead.model;
    for (auto oldest = pages_.begin(); kept > kKeptPerModel; --kept) {
      while (oldest->model != dead.model) ++oldest;
      oldest = pages_.erase(oldest);
    }
    pages_.push_back(std::move(dead));
  }
  /// Of a model that is served no more.
  void forget(const std::string& model) {
    std::erase_if(pages_, [&](const DeadPage& page) { return page.model == model; });
  }
  const std::deque<DeadPage>& pages() const { return pages_; }

 private:
  std::deque<DeadPage> pages_;
};

}  // namespace shoal::supervisor
