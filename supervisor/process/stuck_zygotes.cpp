#include "supervisor/process/stuck_zygotes.hpp"

#include <algorithm>
#include <utility>

namespace shoal::supervisor {

StuckZygotes::~StuckZygotes() {
  for (const Child& zygote : zygotes_) loop_.forget(zygote.pidfd.get());
}

void StuckZygotes::take(const std::string& model, Child zygote) {
  log_.warn("zygote_stuck model={} pid={} stuck={}", model, zygote.pid, zygotes_.size() + 1);
  const int pidfd = zygote.pidfd.get();
  if (loop_.watch(pidfd, [this, pidfd] { died(pidfd); }).ok()) zygotes_.push_back(std::move(zygote));
  // Otherwise reap_children() reaps it.
}

void StuckZygotes::died(int pidfd) {
  const auto found = std::ranges::find(zygotes_, pidfd, [](const Child& zygote) { return zygote.pidfd.get(); });
  if (found == zygotes_.end()) return;
  loop_.forget(pidfd);
  log_.info("zygote_gone pid={}", found->pid);
  zygotes_.erase(found);
}

}  // namespace shoal::supervisor
