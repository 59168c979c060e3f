// Finds holes in the memory of strangers.
#pragma once

#include <cstdint>
#include <string>

#include "shm/base/unique_fd.hpp"
#include "shoal/result.hpp"

namespace shoal {

/// Asks the kernel how far memfds of strangers are allocated (mincore). Allocates nothing of them. Does not wait for whoever
/// writes the file, as lseek(SEEK_HOLE) would, because the writer may take as long as he likes. mmap() and munmap() may wait for
/// whoever punches holes into it: that takes the longer, the more often a process has mapped the file. So the time of a look is
/// no measure of its size, and who limits looks counts both.
///
/// mincore() tells the truth only to a process that owns the file or may write it. To all others it says that every page is
/// there, and the owner of the file decides who may write it, at any time. So inotify watches the mode of a file that this
/// process does not own, while it looks.
///   Threads  thread-bound
class HoleFinder {
 public:
  /// A call reads in at most so many pages that are swapped out, because each may take as long as the swap device needs.
  static constexpr int kMostSwappedIn = 16;
  static constexpr std::uint64_t kSwapCost = 1024;

  struct Found {
    std::uint64_t end = 0;
    bool more_is_swapped = false;  ///< it may go on behind `end`: ask again
  };
  /// Whether the kernel lets this process ask at all.
  ///   Errors  kFailedPrecondition: mincore() fails, for example in a filter of system calls
  static Status check();
  /// How far the memfd is allocated and written without a hole, from `from` on, which is a multiple of 4 KiB: `to`, or the
  /// beginning of the first page that is not. Pages that were allocated and never written count as holes.
  ///   Errors  kOverloaded (there is no inotify, no address, or no memory to read swapped pages: ask again), kInvalidArgument (it
  ///           cannot be mapped; this process may not write it; its mode changed meanwhile), kInternal (mincore() fails)
  Result<Found> allocated_end(const UniqueFd& fd, std::uint64_t from, std::uint64_t to);
  /// The number of pages that the kernel was asked about so far. A page that was read from swap counts as kSwapCost.
  std::uint64_t cost() const { return cost_; }

 private:
  Status begin_watch(const std::string& path, int& watch);
  bool read_notices();  // whether there were any
  Result<Found> look(const UniqueFd& fd, std::uint64_t from, std::uint64_t to);

  UniqueFd notices_;  // of inotify; opened when it is needed first
  std::uint64_t cost_ = 0;
};

}  // namespace shoal
