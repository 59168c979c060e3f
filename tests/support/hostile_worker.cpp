// shoal-worker-hostile: a zygote, and workers, that send anything at any time. It plays models whose name begins with "hostile";
// the number behind that is the seed. The workers of "hostile-hoarder" do only one thing: run_hoarder(), and likewise those of
// "hostile-squatter", "hostile-babbler", "hostile-parker" and "hostile-inventor". Other models are served by the real worker.
//
//   SHOAL_HOSTILE_BYSTANDER  pid of a process whose pidfd is sent, too
//
// No sandbox holds it: that is tested elsewhere. So it may send what a real intruder could not even open.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shm/base/format.hpp"
#include "shoal/passive_openmp.hpp"
#include "tests/support/hostile_lanes.hpp"
#include "tests/support/hostile_process.hpp"
#include "worker/zygote/zygote.hpp"

namespace shoal::test {
namespace {

class HostileZygote : public Hostile {
 public:
  enum class Workers { kHostile, kHoarders, kSquatters, kBabblers, kParkers, kInventors };
  HostileZygote(Chance chance, UniqueFd control, Workers workers)
      : Hostile(std::move(chance), std::move(control), ::getppid()),
        workers_(workers),
        spite_(workers != Workers::kHostile ? 0 : chance_.below(4) * 10) {}

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
                         .text = R"({"inputs":[{"name":"data","dtype":"float32","shape":null}],"outputs":[],"hash":"h"})"};
    if (chance_.percent(spite_)) reply.text = text();
    if (chance_.percent(spite_)) reply.fds.push_back(anything().fd);
    if (workers_ == Workers::kHostile && chance_.percent(30)) reply.fds.push_back(memfd(true, chance_.percent(spite_)));
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
      if (workers_ == Workers::kHoarders) run_hoarder(std::move(message));
      if (workers_ == Workers::kBabblers) run_babbler(std::move(message), wire::Kind::kReply);
      if (workers_ == Workers::kParkers) run_babbler(std::move(message), wire::Kind::kParked);
      if (workers_ == Workers::kInventors) run_babbler(std::move(message), wire::Kind::kReply, 999);
      if (workers_ == Workers::kSquatters) run_squatter(std::move(message));
      run_hostile_worker(Chance(seed), std::move(message), supervisor_);
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

  Workers workers_;
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
  using Workers = HostileZygote::Workers;
  const Workers workers = *name == "-hoarder"    ? Workers::kHoarders
                          : *name == "-squatter" ? Workers::kSquatters
                          : *name == "-babbler"  ? Workers::kBabblers
                          : *name == "-parker"   ? Workers::kParkers
                          : *name == "-inventor" ? Workers::kInventors
                                                 : Workers::kHostile;
  HostileZygote(Chance(seed * 1'000'003 + count_start(seed)), shoal::UniqueFd(kControl), workers).run();
}
