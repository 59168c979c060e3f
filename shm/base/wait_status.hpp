// How a child ended, in waitpid()'s form.
#pragma once

#include <signal.h>
#include <sys/wait.h>

namespace shoal {

/// Of a process of which waitid() says that it has ended.
inline int wait_status_of(const siginfo_t& ended) {
  return ended.si_code == CLD_EXITED ? W_EXITCODE(ended.si_status, 0) : W_EXITCODE(0, ended.si_status);
}

}  // namespace shoal
