// For the preset `coverage`: daemons and workers end by _exit(), which does not write the counts of executed lines.
#include <sys/syscall.h>
#include <unistd.h>

extern "C" void __gcov_dump();

extern "C" [[noreturn]] void _exit(int code) {
  __gcov_dump();
  while (true) ::syscall(SYS_exit_group, code);
}
