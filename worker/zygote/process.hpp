// Functions that change or examine the calling process: its title, core dumps.
#pragma once

#include <string>

namespace shoal::worker {

/// The memory of the command line, which `ps` shows. Valid as long as main()'s argv.
///   Threads  thread-bound
class ProcessTitle {
 public:
  ProcessTitle(int argc, char** argv);
  /// Sets the thread's name to `name` (15 characters) and the command line to "name detail", cut to the room there is.
  void set(const std::string& name, const std::string& detail);

 private:
  char* begin_;
  std::size_t size_;
};

/// Keeps shared memory out of the core dumps of this process and its children. Best effort.
void leave_shared_memory_out_of_core_dumps();

}  // namespace shoal::worker
