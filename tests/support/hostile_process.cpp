#include "tests/support/hostile_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "shm/base/format.hpp"
#include "shm/segment/segment.hpp"

namespace shoal::test {

UniqueFd pidfd_of(pid_t pid, unsigned flags) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, flags))); }

void end_with_parent() { ::prctl(PR_SET_PDEATHSIG, SIGKILL); }

UniqueFd Hostile::memfd(bool sealed, bool sparse) {
  UniqueFd fd(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  (void)!::ftruncate(fd.get(), sparse ? off_t{1} << 40 : 4096);
  if (sealed) (void)seal(fd, Seals::kReadOnly);
  return fd;
}

pid_t Hostile::sibling() {
  std::ifstream children(format("/proc/{}/task/{}/children", supervisor_, supervisor_));
  std::vector<pid_t> pids;
  for (pid_t pid; children >> pid;) pids.push_back(pid);
  return pids.empty() ? supervisor_ : pids[chance_.below(pids.size())];
}

pid_t Hostile::dead_child() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  return pid;
}

Anything Hostile::anything() {
  int ends[2];
  switch (chance_.below(16)) {
    case 0:
      return {memfd(chance_.percent(50), false)};
    case 1:
      return {memfd(true, true)};
    case 2:
      return {std::move(wire::make_control_pair().value().ours)};
    case 3:
      return {UniqueFd(::eventfd(1, EFD_CLOEXEC))};
    case 4:
      return {UniqueFd(::epoll_create1(EPOLL_CLOEXEC))};
    case 5:
      return {UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), supervisor_};
    case 6:
      return {UniqueFd(::open(format("/proc/{}", supervisor_).c_str(), O_RDONLY | O_CLOEXEC)), supervisor_};
    case 7:
      return {UniqueFd(::open("/dev/null", O_PATH | O_CLOEXEC))};
    case 8:
      (void)!::pipe2(ends, O_CLOEXEC);
      ::close(ends[0]);
      return {UniqueFd(ends[1])};
    case 9:
      return {pidfd_of(supervisor_), supervisor_};
    case 10:
      return {pidfd_of(::getpid(), chance_.percent(50) ? O_EXCL : 0), ::getpid()};
    case 11: {
      const char* bystander = std::getenv("SHOAL_HOSTILE_BYSTANDER");
      const pid_t pid = bystander ? std::atoi(bystander) : 1;
      return {pidfd_of(pid), pid};
    }
    case 12: {
      const pid_t pid = dead_child();
      Anything dead{pidfd_of(pid), pid};
      if (chance_.percent(50)) ::waitpid(pid, nullptr, 0);
      return dead;
    }
    case 13: {  // a child that does as it likes
      const pid_t pid = ::fork();
      if (pid == 0) {
        end_with_parent();
        ::usleep(static_cast<useconds_t>(chance_.below(200'000)));
        ::_exit(static_cast<int>(chance_.below(3)));
      }
      return {pidfd_of(pid), pid};
    }
    default: {
      const pid_t pid = sibling();
      return {pidfd_of(pid), pid};
    }
  }
}

void Hostile::send(const ControlMessage& message) { (void)wire::send_control(control_.get(), message); }

void Hostile::send_packet(const std::string& packet, const std::vector<UniqueFd>& fds) {
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  std::vector<char> room(CMSG_SPACE(sizeof(int) * fds.size()));
  if (!fds.empty()) {
    header.msg_control = room.data();
    header.msg_controllen = room.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  (void)!::sendmsg(control_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string Hostile::text() {
  switch (chance_.below(6)) {
    case 0:
      return "";
    case 1:
      return chance_.bytes(300);
    case 2:
      return std::string(wire::kMaxControlText, '[');  // JSON of great depth
    case 3:
      return R"({"inputs":[{"name":"a","dtype":"float32","shape":[1,2,3,4,5,6,7,8,9,10]}],"outputs":[]})";
    case 4:
      return R"({"inputs":[{"name":"a","dtype":"float32","shape":[-9223372036854775808]}],"outputs":[],"packed_bytes":-1,"arena_bytes":1e300})";
    default:
      return R"({"inputs":[],"outputs":[],"hash":"h","warnings":["\u0000\n\u001b[31m"],"arena_bytes":18446744073709551615})";
  }
}

ControlMessage Hostile::any_message() {
  constexpr std::uint64_t kKinds[] = {1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 20, 21, 22, 23, 24, 25, 30, 31, 32, 33, 65535};
  ControlMessage message{.kind = static_cast<ControlKind>(kKinds[chance_.below(std::size(kKinds))]),
                         .id = chance_.number(),
                         .a = chance_.number(),
                         .b = chance_.number(),
                         .text = text()};
  while (message.fds.size() < wire::kMaxControlFds && chance_.percent(30)) {
    if (Anything thing = anything(); thing.fd) message.fds.push_back(std::move(thing.fd));
  }
  return message;
}

void Hostile::send_torn_message() {
  std::string packet(kHeaderBytes, '\0');
  const std::uint32_t magic = 0x54435348;
  const std::uint16_t version = 1, kind = static_cast<std::uint16_t>(10 + chance_.below(23));
  const std::uint32_t bytes = static_cast<std::uint32_t>(chance_.number()), fds = static_cast<std::uint32_t>(chance_.number());
  std::memcpy(packet.data(), &magic, sizeof magic);
  std::memcpy(packet.data() + 4, &version, sizeof version);
  std::memcpy(packet.data() + 6, &kind, sizeof kind);
  std::memcpy(packet.data() + 32, &bytes, sizeof bytes);
  std::memcpy(packet.data() + 36, &fds, sizeof fds);
  packet += chance_.bytes(100);
  packet.resize(chance_.percent(50) ? packet.size() : chance_.below(packet.size() + 1));
  send_packet(packet);
}

void Hostile::send_many_descriptors() {
  std::vector<UniqueFd> fds;
  for (std::uint64_t count = 5 + chance_.below(60); fds.size() < count;) fds.emplace_back(::dup(STDERR_FILENO));
  send_packet("x", fds);
}

void Hostile::flood() {
  const ControlMessage message = any_message();
  for (int i = 0; i < 3000; ++i) send(message);
}

void Hostile::misbehave() {
  switch (chance_.below(14)) {
    case 0:
      return send_packet(chance_.bytes(200));
    case 1:
      return send_packet(std::string(wire::kMaxControlText + kHeaderBytes + 1 + chance_.below(1000), 'A'));
    case 2:
    case 3:
      return send_torn_message();
    case 4:
      return send_many_descriptors();
    case 5:
      return flood();
    case 6:
      ::usleep(static_cast<useconds_t>(chance_.below(1'500'000)));  // silence
      return;
    case 7:
      ::_exit(static_cast<int>(chance_.below(4)));
    case 8:
      std::abort();
    case 9:
      ::raise(SIGSTOP);
      return;
    case 10:
      ::raise(SIGKILL);
      return;
    case 11:
      control_.reset();  // and live on
      while (true) ::pause();
    default:
      return send(any_message());
  }
}

}  // namespace shoal::test
