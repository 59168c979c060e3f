// The preset `coverage`: daemons and workers leave by _exit(), which would throw their counts away.
#include <sys/syscall.h>
#include <unistd.h>

extern "C" void __gcov_dump();

extern "C" [[noreturn]] void _exit(int code) {
  __gcov_dump();
  while (true) ::syscall(SYS_exit_group, code);
}
