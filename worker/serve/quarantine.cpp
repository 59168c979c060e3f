#include "worker/serve/quarantine.hpp"

#include <algorithm>
#include <charconv>

#include "shm/base/errors.hpp"
#include "worker/graph/content_hash.hpp"

namespace shoal::worker {

std::uint64_t hash_inputs(std::span<const TensorView> inputs) {
  ContentHash content;
  for (const TensorView& input : inputs) {
    const std::uint8_t kind[] = {static_cast<std::uint8_t>(input.dtype), static_cast<std::uint8_t>(input.shape.rank())};
    content.add(std::as_bytes(std::span(kind)));
    content.add(std::as_bytes(input.shape.dims()));
    content.add(input.bytes());
  }
  const std::uint64_t hash = content.value();
  return hash != 0 ? hash : 1;
}

Status Quarantine::replace(std::string_view text, std::uint8_t number) {
  constexpr std::size_t kDigits = 16;
  std::vector<std::uint64_t> hashes;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    std::uint64_t hash = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), hash, 16);
    if (line.size() != kDigits || error != std::errc() || end != line.data() + line.size())
      return invalid_argument("the list of quarantined inputs has a line that is not {} hex digits", kDigits);
    hashes.push_back(hash);
  }
  std::ranges::sort(hashes);
  const MutexLock lock(mutex_);
  hashes_ = std::move(hashes);
  is_empty_.store(hashes_.empty(), std::memory_order_relaxed);
  number_.store(number, std::memory_order_release);
  replaced_.notify_all();
  return {};
}

bool Quarantine::is_here(std::uint8_t number) const {
  const std::uint8_t last = number_.load(std::memory_order_acquire);
  return last != 0 && static_cast<std::uint8_t>(last - number) < 128;
}

void Quarantine::wait_for(std::uint8_t number, std::chrono::milliseconds limit) const {
  if (is_here(number)) return;
  const auto until = std::chrono::steady_clock::now() + limit;
  const MutexLock lock(mutex_);
  while (!is_here(number) && replaced_.wait_until(mutex_, until)) {
  }
  if (!is_here(number)) number_.store(number, std::memory_order_release);
}

bool Quarantine::contains(std::uint64_t hash) const {
  const MutexLock lock(mutex_);
  return std::ranges::binary_search(hashes_, hash);
}

}  // namespace shoal::worker
