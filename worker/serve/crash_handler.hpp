// The crash handler: evidence of what a worker was doing when a fatal signal came.
#pragma once

#include "shm/wire/status_page.hpp"
#include "worker/exec/program.hpp"

namespace shoal::worker {

/// Takes SEGV, BUS, ILL, FPE, ABRT, SYS and TRAP for the whole process: the handler fills the crash record of the faulting
/// thread's lane, or that of `first_line` when the thread is no lane, and lets the signal end the process as it would have.
///   first_line   of the status page, for the life of the process
void install_crash_handler(wire::LaneLine* first_line);

/// Makes the calling thread a lane in the handler's eyes and gives it an alternate stack, so that a stack overflow leaves
/// evidence, too.
///   Threads  thread-bound: made and destroyed by the lane's thread
class CrashEvidence {
 public:
  /// Both outlive this.
  CrashEvidence(wire::LaneLine& line, const Progress& progress);
  ~CrashEvidence();
  CrashEvidence(const CrashEvidence&) = delete;
  CrashEvidence& operator=(const CrashEvidence&) = delete;

 private:
  void* stack_;
  std::size_t stack_bytes_;
};

}  // namespace shoal::worker
