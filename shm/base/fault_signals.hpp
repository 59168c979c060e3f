// The signals that a process raises by its own fault.
#pragma once

#include <csignal>

namespace shoal {

/// A worker records them, nobody blocks them, and a death by one of them is a crash.
inline constexpr int kFaultSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};

}  // namespace shoal
