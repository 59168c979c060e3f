#include "supervisor/route/flow_statistics.hpp"

#include <algorithm>

namespace shoal::supervisor {

FlowStatistics::Row& FlowStatistics::of(ClientId client, std::uint64_t flow) {
  std::size_t at = 1;
  while (at < keys_.size() && (keys_[at].client != client || keys_[at].flow != flow)) ++at;
  if (at >= keys_.size()) {
    at = place_for_another();
    keys_[at] = {.client = client, .flow = flow};
    rows_[at].client = client;
    rows_[at].flow = flow;
  }
  keys_[at].used = ++uses_;
  return rows_[at];
}

// An empty row at the end, or that of the flow that was used before all others.
std::size_t FlowStatistics::place_for_another() {
  if (keys_.size() > kMostFlows) {
    const auto oldest = std::ranges::min_element(keys_.begin() + 1, keys_.end(), {}, &Key::used);
    const auto at = static_cast<std::size_t>(oldest - keys_.begin());
    fold(at);
    return at;
  }
  const std::size_t size = keys_.empty() ? 2 : keys_.size() + 1;  // the first row is that of the others
  if (size > rows_.capacity()) rows_.reserve(std::min(size * 2, kMostFlows + 1));
  rows_.resize(size);
  keys_.resize(size);
  return size - 1;
}

void FlowStatistics::client_gone(ClientId client) {
  for (std::size_t at = keys_.size(); at-- > 1;) {
    if (keys_[at].client != client) continue;
    fold(at);
    if (at + 1 < keys_.size()) {
      rows_[at] = rows_.back();
      keys_[at] = keys_.back();
    }
    rows_.pop_back();
    keys_.pop_back();
  }
}

void FlowStatistics::fold(std::size_t at) {
  Row& row = rows_[at];
  Row& others = rows_.front();
  others.requests += row.requests;
  others.refused += row.refused;
  others.queue_ns.add(row.queue_ns);
  others.compute_ns.add(row.compute_ns);
  others.total_ns.add(row.total_ns);
  row = {};
}

}  // namespace shoal::supervisor
