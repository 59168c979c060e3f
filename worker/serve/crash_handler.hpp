// The crash handler: evidence of what a worker was doing when a fatal signal came.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/wire/status_page.hpp"
#include "worker/exec/program.hpp"

namespace shoal::worker {

/// Takes SEGV, BUS, ILL, FPE, ABRT, SYS and TRAP for the whole process: the handler fills the crash record of the faulting
/// thread's lane, or that of `first_line` when the thread is no lane, and lets the signal end the process as it would have. The
/// record's stack has a line per frame, "module+0x12f0", innermost first; before them what nobody caught, if it was an exception.
/// Code that is loaded later or generated has no module there. Of SIGSYS the operator's text also names the system call.
///   first_line   of the status page, for the life of the process
void install_crash_handler(wire::LaneLine* first_line);
/// Ends the process with a record whose cause is kOutOfMemory: for those who can answer nobody any more.
[[noreturn]] void abort_out_of_memory();

/// Makes the calling thread a lane's in the handler's eyes and gives it an alternate stack, so that a stack overflow leaves
/// evidence, too. One thread per lane serves it; the one that compiles acts for the lane whose request it compiles for.
///   Threads  thread-bound: made and destroyed by the same thread
class CrashEvidence {
 public:
  /// All three outlive this. `request_id` names what the thread works on.
  CrashEvidence(wire::LaneLine& line, const Progress& progress, const std::atomic<std::uint64_t>& request_id);
  ~CrashEvidence();
  CrashEvidence(const CrashEvidence&) = delete;
  CrashEvidence& operator=(const CrashEvidence&) = delete;

 private:
  void* stack_;
  std::size_t stack_bytes_;
};

}  // namespace shoal::worker
