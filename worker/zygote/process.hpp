// What a process of ours does to itself: its name, its descriptors, its thread count.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "shoal/result.hpp"

namespace shoal::worker {

/// The command line in memory, which is what `ps` shows. Lives as long as main()'s argv.
///   Threads  thread-bound
class ProcessTitle {
 public:
  ProcessTitle(int argc, char** argv);
  /// `name` becomes the thread's name (15 characters); "name detail" the command line, as far as it has room.
  void set(const std::string& name, const std::string& detail);

 private:
  char* begin_;
  std::size_t size_;
};

/// Closes every descriptor but stdin, stdout, stderr and `kept`.
void close_all_but(std::vector<int> kept);
/// Core dumps of this process, and of those it forks, hold private memory only. Best effort.
void leave_shared_memory_out_of_core_dumps();
/// Threads of this process. Errors: kInternal when /proc cannot be read.
Result<int> count_threads();

}  // namespace shoal::worker
