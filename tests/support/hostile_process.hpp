// What the zygote and the workers of shoal-worker-hostile have in common: a control socket and no manners.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/wire/control.hpp"

namespace shoal::test {

using wire::ControlKind;
using wire::ControlMessage;

inline constexpr std::size_t kHeaderBytes = 40;  // of a control message

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

UniqueFd pidfd_of(pid_t pid, unsigned flags = 0);
void end_with_parent();

/// Anything that can lie in a descriptor, and the pid that a message could name with it.
struct Anything {
  UniqueFd fd;
  pid_t pid = 1;
};

/// One process that sends anything on its control socket.
class Hostile {
 public:
  Hostile(Chance chance, UniqueFd control, pid_t supervisor)
      : chance_(std::move(chance)), control_(std::move(control)), supervisor_(supervisor) {}

 protected:
  UniqueFd memfd(bool sealed, bool sparse);
  pid_t sibling();
  pid_t dead_child();
  Anything anything();
  void send(const ControlMessage& message);
  void send_packet(const std::string& packet, const std::vector<UniqueFd>& fds = {});
  std::string text();
  ControlMessage any_message();
  /// Half a message, or one whose header lies.
  void send_torn_message();
  void send_many_descriptors();
  void flood();
  /// What any process can do to who waits for it.
  void misbehave();

  Chance chance_;
  UniqueFd control_;
  pid_t supervisor_;
};

}  // namespace shoal::test
