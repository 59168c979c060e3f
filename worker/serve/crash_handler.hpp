// The crash handler: records what a worker did when a fatal signal came.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/wire/status_page.hpp"
#include "worker/exec/program.hpp"

namespace shoal::worker {

/// Handles SEGV, BUS, ILL, FPE, ABRT, SYS and TRAP for the whole process: the handler fills the crash record of the faulting
/// thread's lane (of `first_line` if the thread is no lane), and the signal then ends the process as usual. The record's stack
/// has one line per frame, "module+0x12f0", innermost first. An uncaught exception is named in a line before them. Code that is
/// generated, or loaded later, is shown without a module. For SIGSYS the operator's text also names the system call.
///   first_line   of the status page; valid for the life of the process
void install_crash_handler(wire::LaneLine* first_line);
/// Ends the process with a record whose cause is kOutOfMemory. For a thread that cannot answer requests any more.
///   where  completes "out of memory, "
[[noreturn]] void abort_out_of_memory(const char* where);

/// Tells the handler that the calling thread works for a lane, and gives the thread an alternate stack, so that a stack overflow
/// is recorded, too. The thread that compiles works for the lane whose request it compiles for.
///   Threads  thread-bound: made and destroyed by the same thread
class CrashEvidence {
 public:
  /// All three outlive this. `request_id` is the request that the thread works on. Throws std::bad_alloc: no memory for the
  /// stack.
  CrashEvidence(wire::LaneLine& line, const Progress& progress, const std::atomic<std::uint64_t>& request_id);
  ~CrashEvidence();
  CrashEvidence(const CrashEvidence&) = delete;
  CrashEvidence& operator=(const CrashEvidence&) = delete;

 private:
  void* stack_;
  std::size_t stack_bytes_;
};

}  // namespace shoal::worker
