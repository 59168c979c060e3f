// A file system that never answers, as a network path whose server is gone.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "shm/base/unique_fd.hpp"

namespace shoal::test {

/// Mounts FUSE at an existing directory or file, for this thread and its children only. Who touches a file there sleeps without a
/// signal waking it, SIGKILL included, until this is destroyed. A file that is mounted itself can be opened, but close() sleeps
/// so. Needs the right to mount, and /dev/fuse.
///   Threads  thread-bound; make it before anything that shall see it
class DeadMount {
 public:
  explicit DeadMount(std::string path) : path_(std::move(path)), device_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    if (!device_) return;
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    const std::string mode = std::filesystem::is_directory(path_) ? "40000" : "100000";
    const std::string options = "fd=" + std::to_string(device_.get()) + ",rootmode=" + mode +
                                ",user_id=" + std::to_string(::geteuid()) + ",group_id=" + std::to_string(::getegid());
    if (::mount("shoal-test", path_.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) return;
    is_mounted_ = true;
    welcome();
    // A question that was read and not answered cannot be given up by who asked it.
    reader_ = std::jthread([fd = device_.get()] {
      std::vector<char> question(kQuestionBytes);
      while (::read(fd, question.data(), question.size()) > 0) {
        const auto* const header = reinterpret_cast<const fuse_in_header*>(question.data());
        if (header->opcode == FUSE_OPEN) answer(fd, *header, fuse_open_out{});
      }
    });
  }
  ~DeadMount() {
    revive();
    if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  DeadMount(const DeadMount&) = delete;
  DeadMount& operator=(const DeadMount&) = delete;

  bool is_mounted() const { return is_mounted_; }
  /// Every question is answered with an error from now on, those that wait included.
  void revive() {
    if (!is_mounted_ || !device_) return;
    ::umount2(path_.c_str(), MNT_FORCE);  // aborts the connection
    reader_ = {};
    device_.reset();
  }

 private:
  static constexpr std::size_t kQuestionBytes = 1 << 17;

  // Without an answer to its first question the kernel asks no other, and who waits can still be killed.
  void welcome() const {
    std::vector<char> question(kQuestionBytes);
    if (::read(device_.get(), question.data(), question.size()) < 0) return;
    fuse_init_out init{};
    init.major = FUSE_KERNEL_VERSION;
    init.minor = FUSE_KERNEL_MINOR_VERSION;
    init.max_write = 4096;
    answer(device_.get(), *reinterpret_cast<const fuse_in_header*>(question.data()), init);
  }

  template <typename Body>
  static void answer(int device, const fuse_in_header& question, const Body& body) {
    struct {
      fuse_out_header header;
      Body body;
    } answer{.header = {.len = sizeof answer, .error = 0, .unique = question.unique}, .body = body};
    (void)!::write(device, &answer, sizeof answer);
  }

  std::string path_;
  UniqueFd device_;
  bool is_mounted_ = false;
  std::jthread reader_;
};

}  // namespace shoal::test
