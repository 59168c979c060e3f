// Connections that wait until they may attach ([limits] connection_rate).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "shm/base/unique_fd.hpp"

namespace shoal::supervisor {

/// A line for each user, and the users take turns. So a user that connects again and again delays only its own processes.
///   Threads  thread-bound
class Arrivals {
 public:
  struct Arrival {
    uid_t user = 0;
    UniqueFd connection;
    UniqueFd pidfd;  ///< of the process that has connected, while its number is not another one's
  };

  void add(Arrival arrival) {
    lines_[arrival.user].push_back(std::move(arrival));
    ++size_;
  }
  /// The next user's first connection, if any waits.
  std::optional<Arrival> take() {
    if (lines_.empty()) return std::nullopt;
    auto line = lines_.upper_bound(last_);
    if (line == lines_.end()) line = lines_.begin();
    last_ = line->first;
    Arrival arrival = std::move(line->second.front());
    line->second.pop_front();
    if (line->second.empty()) lines_.erase(line);
    --size_;
    return arrival;
  }
  std::size_t size() const { return size_; }
  std::size_t count(uid_t user) const {
    const auto line = lines_.find(user);
    return line == lines_.end() ? 0 : line->second.size();
  }

 private:
  std::map<uid_t, std::deque<Arrival>> lines_;
  std::size_t size_ = 0;
  uid_t last_ = 0;  // who had the last turn
};

}  // namespace shoal::supervisor
