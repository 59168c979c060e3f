// shoal-worker-hostile: a zygote, and workers, that send anything at any time. It plays models whose name begins with "hostile";
// the number behind that is the seed. The workers of "hostile-hoarder" do only one thing: Hoarder. Other models are served by the
// real worker.
//
//   SHOAL_HOSTILE_BYSTANDER  pid of a process whose pidfd is sent, too
//
// No sandbox holds it: that is tested elsewhere. So it may send what a real intruder could not even open.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <list>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/format.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"
#include "shm/wire/status_page.hpp"
#include "shoal/passive_openmp.hpp"
#include "tests/support/unix_socket.hpp"
#include "tests/support/zmtp.hpp"
#include "worker/zygote/zygote.hpp"

namespace shoal::test {
namespace {

using wire::ControlKind;
using wire::ControlMessage;

constexpr std::size_t kHeaderBytes = 40;  // of a control message

/// Everything that one process does by chance.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t bound) { return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(engine_); }
  bool percent(unsigned percent) { return below(100) < percent; }
  std::uint64_t any() { return engine_(); }
  /// Mostly small, sometimes at an edge.
  std::uint64_t number() {
    switch (below(8)) {
      case 0:
        return any();
      case 1:
        return ~std::uint64_t{0};
      case 2:
        return std::uint64_t{1} << below(64);
      default:
        return below(64);
    }
  }
  std::string bytes(std::size_t most) {
    std::string text(below(most + 1), '\0');
    for (char& c : text) c = static_cast<char>(any());
    return text;
  }

 private:
  std::mt19937_64 engine_;
};

UniqueFd pidfd_of(pid_t pid, unsigned flags = 0) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, flags))); }

void end_with_parent() { ::prctl(PR_SET_PDEATHSIG, SIGKILL); }

/// Anything that can lie in a descriptor, and the pid that a message could name with it.
struct Anything {
  UniqueFd fd;
  pid_t pid = 1;
};

/// What zygote and worker have in common: a control socket and no manners.
class Hostile {
 public:
  Hostile(Chance chance, UniqueFd control, pid_t supervisor)
      : chance_(std::move(chance)), control_(std::move(control)), supervisor_(supervisor) {}

 protected:
  UniqueFd memfd(bool sealed, bool sparse) {
    UniqueFd fd(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    (void)!::ftruncate(fd.get(), sparse ? off_t{1} << 40 : 4096);
    if (sealed) (void)seal(fd, Seals::kReadOnly);
    return fd;
  }

  pid_t sibling() {
    std::ifstream children(format("/proc/{}/task/{}/children", supervisor_, supervisor_));
    std::vector<pid_t> pids;
    for (pid_t pid; children >> pid;) pids.push_back(pid);
    return pids.empty() ? supervisor_ : pids[chance_.below(pids.size())];
  }

  pid_t dead_child() {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(0);
    return pid;
  }

  Anything anything() {
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

  void send(const ControlMessage& message) { (void)wire::send_control(control_.get(), message); }

  void send_packet(const std::string& packet, const std::vector<UniqueFd>& fds = {}) {
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

  std::string text() {
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

  ControlMessage any_message() {
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

  /// Half a message, or one whose header lies.
  void send_torn_message() {
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

  void send_many_descriptors() {
    std::vector<UniqueFd> fds;
    for (std::uint64_t count = 5 + chance_.below(60); fds.size() < count;) fds.emplace_back(::dup(STDERR_FILENO));
    send_packet("x", fds);
  }

  void flood() {
    const ControlMessage message = any_message();
    for (int i = 0; i < 3000; ++i) send(message);
  }

  /// What any process can do to who waits for it.
  void misbehave() {
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

  Chance chance_;
  UniqueFd control_;
  pid_t supervisor_;
};

/// One worker: its lanes are sockets, and what it says on them is as good as what it says elsewhere.
class HostileWorker : public Hostile {
 public:
  HostileWorker(Chance chance, ControlMessage fork, pid_t supervisor)
      : Hostile(std::move(chance), std::move(fork.fds[0]), supervisor), fork_(std::move(fork)), spite_(chance_.below(3) * 10) {}

  [[noreturn]] void run() {
    std::string paths;
    for (std::uint64_t lane = 0; lane < fork_.a; ++lane) {
      const std::string path = format("{}/w{}-{}", fork_.text, fork_.id, lane);
      auto socket = wire::Dealer::bind(context_, path);
      if (socket.ok()) lanes_.push_back(std::move(*socket));
      paths += path + '\n';
    }
    if (chance_.percent(80))
      send({.kind = ControlKind::kReady, .id = fork_.id, .text = paths});
    else
      send({.kind = ControlKind::kReady,
            .id = chance_.number(),
            .text = chance_.percent(50) ? paths + paths : chance_.bytes(300)});
    while (true) {
      answer_what_came();
      listen();
      if (chance_.percent(spite_ / 2)) misbehave();
      if (chance_.percent(spite_ / 2)) misbehave_as_worker();
    }
  }

 private:
  void listen() {
    pollfd waiting{.fd = control_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(chance_.below(20))) != 1) return;
    const auto message = wire::receive_control(control_.get());
    if (message.status().code() == StatusCode::kUnavailable) ::_exit(0);
    if (message.ok() && *message && (**message).kind == ControlKind::kProbe && chance_.percent(70))
      send({.kind = ControlKind::kProbed, .id = (**message).id, .a = chance_.percent(70) ? 0 : chance_.number(), .text = text()});
  }

  void misbehave_as_worker() {
    switch (chance_.below(5)) {
      case 0: {  // the status page
        auto page = Segment::map(fork_.fds[1], Segment::Access::kReadWrite);
        if (!page.ok()) return;
        for (std::byte& byte : page->mutable_bytes()) byte = static_cast<std::byte>(chance_.any());
        return;
      }
      case 1:
        return send({.kind = ControlKind::kProbed, .id = fork_.id});
      case 2:
        return send({.kind = ControlKind::kWorkerFailed, .a = chance_.number(), .text = text()});
      case 3:
        (void)::fallocate(fork_.fds[1].get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20);
        return;
      default:
        for (wire::Dealer& lane : lanes_) say_anything(lane, {});
    }
  }

  void answer_what_came() {
    wire::Message message;
    for (wire::Dealer& lane : lanes_) {
      for (auto received = lane.receive(message); received.ok() && *received; received = lane.receive(message)) {
        const auto request =
            message.empty() ? Result<wire::Request>(Status(StatusCode::kInvalidArgument, "")) : wire::decode_request(message[0]);
        if (!request.ok()) continue;
        if (chance_.percent(100 - spite_))
          answer(lane, *request);
        else
          say_anything(lane, request->header);
      }
    }
  }

  // Outputs that lie nowhere: what an honest worker says of a model without outputs.
  void answer(wire::Dealer& lane, const wire::Request& request) {
    wire::Reply reply;
    reply.header = {.magic = wire::kMagic,
                    .version = wire::kVersionMajor,
                    .kind = static_cast<std::uint16_t>(wire::Kind::kReply),
                    .seq = request.header.seq,
                    .request_id = request.header.request_id,
                    .incarnation = request.header.incarnation,
                    .attempt = request.header.attempt,
                    .ran = 2,
                    .batch = 1};
    std::vector<std::byte> frame;
    wire::encode_reply(reply, frame);
    (void)lane.send(frame);
  }

  wire::WireTensor any_tensor() {
    wire::WireTensor tensor{};
    tensor.offset_bytes = chance_.number() * 64;
    tensor.capacity_bytes = chance_.number();
    tensor.size_bytes = chance_.number();
    for (auto& dim : tensor.dims) dim = static_cast<std::int64_t>(chance_.number());
    tensor.rank = static_cast<std::uint8_t>(chance_.below(12));
    tensor.dtype = static_cast<std::uint8_t>(chance_.below(16));
    tensor.location = static_cast<std::uint8_t>(chance_.below(4));
    return tensor;
  }

  void say_anything(wire::Dealer& lane, const wire::RequestHeader& request) {
    wire::Reply reply;
    reply.header = {.magic = wire::kMagic,
                    .version = wire::kVersionMajor,
                    .kind = static_cast<std::uint16_t>(wire::Kind::kReply),
                    .seq = request.seq,
                    .request_id = request.request_id,
                    .incarnation = request.incarnation,
                    .attempt = request.attempt};
    auto& header = reply.header;
    if (chance_.percent(20)) header.kind = static_cast<std::uint16_t>(chance_.below(12));
    if (chance_.percent(20)) header.request_id = chance_.number();
    if (chance_.percent(20)) header.incarnation = chance_.number();
    if (chance_.percent(20)) header.attempt = static_cast<std::uint16_t>(chance_.number());
    if (chance_.percent(30)) header.status = static_cast<std::uint16_t>(chance_.number());
    header.ran = static_cast<std::uint8_t>(chance_.number());
    header.released = static_cast<std::uint8_t>(chance_.number());
    header.batch = static_cast<std::uint16_t>(chance_.number());
    header.compute_ns = chance_.number();
    reply.outputs.resize(chance_.below(4));
    for (auto& output : reply.outputs) output = any_tensor();
    std::vector<std::byte> frame;
    wire::encode_reply(reply, frame);
    if (chance_.percent(20)) frame.resize(chance_.below(frame.size() + 1));
    if (chance_.percent(20)) {
      for (int i = 0; i < 4 && !frame.empty(); ++i) frame[chance_.below(frame.size())] = static_cast<std::byte>(chance_.any());
    }
    const std::string rest = chance_.bytes(5000);
    std::vector<std::span<const std::byte>> frames(1 + chance_.below(4) * chance_.below(10), std::as_bytes(std::span(rest)));
    if (chance_.percent(95)) frames[0] = frame;
    for (std::uint64_t times = chance_.percent(10) ? 500 : 1 + chance_.below(3); times-- > 0;) (void)lane.send(frames);
  }

  ControlMessage fork_;
  unsigned spite_;  // percent
  wire::MessageContext context_;
  std::list<wire::Dealer> lanes_;
};

/// A worker with one lane. When it gets a request, it sends many frames of a message that it never finishes.
class Hoarder {
 public:
  explicit Hoarder(ControlMessage fork) : fork_(std::move(fork)) {}

  [[noreturn]] void run() {
    constexpr int kFrames = 800;  // of 1 MiB
    const std::string path = format("{}/w{}-0", fork_.text, fork_.id);
    const UniqueFd listener = bound_socket(path, SOCK_STREAM);
    (void)wire::send_control(fork_.fds[0].get(), {.kind = ControlKind::kReady, .id = fork_.id, .text = path + '\n'});
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    pollfd asked{.fd = socket.get(), .events = POLLIN, .revents = 0};
    zmtp::Connection supervisor(std::move(socket));
    supervisor.shake_hands("DEALER");
    ::poll(&asked, 1, -1);
    const std::string frame = zmtp::long_frame(zmtp::kMore, std::string(1 << 20, '\0'));
    for (int i = 0; i < kFrames; ++i) (void)supervisor.send_all(frame);
    while (true) ::pause();
  }

 private:
  ControlMessage fork_;
};

class HostileZygote : public Hostile {
 public:
  HostileZygote(Chance chance, UniqueFd control, bool is_hoarder)
      : Hostile(std::move(chance), std::move(control), ::getppid()),
        is_hoarder_(is_hoarder),
        spite_(is_hoarder ? 0 : chance_.below(4) * 10) {}

  [[noreturn]] void run() {
    ::signal(SIGCHLD, SIG_DFL);
    while (true) {
      pollfd waiting{.fd = control_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, static_cast<int>(chance_.below(20))) == 1) listen();
      report_ends();
      if (chance_.percent(spite_ / 2)) misbehave();
      if (chance_.percent(spite_ / 2)) misbehave_as_zygote();
    }
  }

 private:
  void listen() {
    auto message = wire::receive_control(control_.get());
    if (message.status().code() == StatusCode::kUnavailable) ::_exit(0);
    if (!message.ok() || !*message) return;
    if ((**message).kind == ControlKind::kLoad) return load();
    if ((**message).kind == ControlKind::kFork && (**message).fds.size() == 2) return fork(**std::move(message));
  }

  void load() {
    ControlMessage reply{.kind = ControlKind::kLoaded,
                         .text = R"({"inputs":[{"name":"data","dtype":"float32","shape":[]}],"outputs":[],"hash":"h"})"};
    if (chance_.percent(spite_)) reply.text = text();
    if (chance_.percent(spite_)) reply.fds.push_back(anything().fd);
    if (!is_hoarder_ && chance_.percent(30)) reply.fds.push_back(memfd(true, chance_.percent(spite_)));
    std::erase_if(reply.fds, [](const UniqueFd& fd) { return !fd; });
    if (chance_.percent(spite_ / 2)) reply.kind = ControlKind::kLoadFailed;
    send(reply);
    if (chance_.percent(spite_)) send(reply);
  }

  void fork(ControlMessage message) {
    last_fork_ = message.id;
    if (chance_.percent(spite_)) return;  // it leaves the command, or says something else
    const std::uint64_t seed = chance_.any();
    const pid_t pid = ::fork();
    if (pid == 0) {
      end_with_parent();
      control_.reset();
      if (is_hoarder_) Hoarder(std::move(message)).run();
      HostileWorker& worker = *new HostileWorker(Chance(seed), std::move(message), supervisor_);
      worker.run();
    }
    children_.emplace_back(pid, message.id);
    ControlMessage reply{.kind = ControlKind::kForked, .id = message.id, .a = static_cast<std::uint64_t>(pid)};
    reply.fds.push_back(pidfd_of(pid));
    send(reply);
  }

  void report_ends() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto child = std::find_if(children_.begin(), children_.end(), [&](const auto& each) { return each.first == pid; });
      if (child == children_.end()) continue;
      send({.kind = ControlKind::kExited,
            .id = child->second,
            .a = static_cast<std::uint64_t>(pid),
            .b = static_cast<std::uint64_t>(status)});
      children_.erase(child);
    }
  }

  void misbehave_as_zygote() {
    switch (chance_.below(4)) {
      case 0:
        return send({.kind = ControlKind::kExited, .id = 1 + chance_.below(40), .a = chance_.number(), .b = chance_.number()});
      case 1:
        return send({.kind = ControlKind::kForkFailed, .id = 1 + chance_.below(40), .text = text()});
      default: {
        Anything thing = anything();
        ControlMessage message{.kind = ControlKind::kForked,
                               .id = chance_.percent(70) ? last_fork_ : 1 + chance_.below(40),
                               .a = chance_.percent(80) ? static_cast<std::uint64_t>(thing.pid) : chance_.number()};
        if (thing.fd) message.fds.push_back(std::move(thing.fd));
        return send(message);
      }
    }
  }

  bool is_hoarder_;
  unsigned spite_;  // percent
  std::uint64_t last_fork_ = 0;
  std::vector<std::pair<pid_t, std::uint64_t>> children_;
};

/// What follows "hostile" in the name of the model whose LOAD waits on that socket. Reads without taking.
std::optional<std::string> hostile_name(int control) {
  std::vector<char> packet(kHeaderBytes + wire::kMaxControlText);
  const ssize_t size = ::recv(control, packet.data(), packet.size(), MSG_PEEK);
  const std::string_view text(packet.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  constexpr std::string_view kName = R"("name":"hostile)";
  const auto name = text.find(kName);
  if (name == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(name + kName.size());
  return std::string(rest.substr(0, rest.find('"')));
}

/// How often a zygote of this seed was started before, so that each start is another.
std::uint64_t count_start(std::uint64_t seed) {
  const UniqueFd file(
      ::open(format("{}/hostile{}", std::getenv("SHOAL_DIR"), seed).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  (void)!::write(file.get(), "x", 1);
  return static_cast<std::uint64_t>(::lseek(file.get(), 0, SEEK_END));
}

}  // namespace
}  // namespace shoal::test

int main(int argc, char** argv) {
  using namespace shoal::test;
  constexpr int kControl = 3;
  const auto name = hostile_name(kControl);
  if (!name) {
    shoal::ensure_passive_openmp(argv);
    return shoal::worker::worker_main(argc, argv);
  }
  const std::uint64_t seed = std::strtoull(name->c_str(), nullptr, 10);
  HostileZygote(Chance(seed * 1'000'003 + count_start(seed)), shoal::UniqueFd(kControl), *name == "-hoarder").run();
}
