#include "worker/exec/context.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "shm/base/ranges.hpp"

namespace shoal::worker {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Arena::~Arena() { release(); }

void Arena::release() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
  data_ = nullptr;
  size_bytes_ = used_bytes_ = 0;
}

void Arena::trim(std::size_t bytes) {
  const std::size_t kept = align_up(bytes, kHugePage);
  if (kept >= used_bytes_) return;
  ::madvise(data_ + kept, size_bytes_ - kept, MADV_DONTNEED);
  used_bytes_ = kept;
}

void Arena::reserve(std::size_t bytes) {
  used_bytes_ = std::max(used_bytes_, bytes);
  if (bytes <= size_bytes_) return;
  release();
  // Uses huge pages only for ranges that fill them, because the kernel charges a whole huge page. A worker shall cost no more
  // than its activations.
  const std::size_t rounded = align_up(bytes, 4096);
  const std::size_t huge_bytes = bytes >= 2 * kHugePage ? rounded / kHugePage * kHugePage : 0;
  const bool huge = huge_bytes > 0;
  const std::size_t slack = huge ? kHugePage : 0;
  void* mapped = ::mmap(nullptr, rounded + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(mapped);
  auto* aligned = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::uintptr_t>(first), huge ? kHugePage : 4096));
  if (aligned != first) ::munmap(first, static_cast<std::size_t>(aligned - first));
  if (std::byte* end = first + rounded + slack; end != aligned + rounded) {
    ::munmap(aligned + rounded, static_cast<std::size_t>(end - (aligned + rounded)));
  }
  if (huge) ::madvise(aligned, huge_bytes, MADV_HUGEPAGE);
  data_ = aligned;
  size_bytes_ = rounded;
  used_bytes_ = bytes;
}

void Context::State::forget_expired() {
  bindings.remove_if([](const Binding& binding) { return binding.program_alive.expired(); });
  std::size_t needed = 0;
  for (const Binding& binding : bindings) needed = std::max(needed, binding.arena_bytes);
  arena.trim(needed);
}

void Context::State::forget_all() {
  bindings.clear();
  devices.release();
  arena.release();
}

Context::Context() : state(std::make_unique<State>()) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
void Context::release_memory() { state->forget_all(); }

}  // namespace shoal::worker
