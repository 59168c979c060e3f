#include "worker/zygote/process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "shm/base/unique_fd.hpp"

namespace shoal::worker {

ProcessTitle::ProcessTitle(int argc, char** argv) : begin_(argv[0]), size_(0) {
  // The arguments lie one after the other in memory. The environment follows them and must not be overwritten.
  for (int i = 0; i < argc && argv[i] == begin_ + size_; ++i) size_ += std::strlen(argv[i]) + 1;
}

void ProcessTitle::set(const std::string& name, const std::string& detail) {
  ::prctl(PR_SET_NAME, name.c_str());
  const std::string title = name + " " + detail;
  const std::size_t length = std::min(title.size(), size_ - 1);
  std::memset(begin_, 0, size_);
  std::memcpy(begin_, title.data(), length);
}

void leave_shared_memory_out_of_core_dumps() {
  const UniqueFd fd(::open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC));
  (void)!::write(fd.get(), "0x31", 4);  // core(5): private memory that is no file's, huge pages of it, and ELF headers
}

}  // namespace shoal::worker
