// libFuzzer: bytes as packets of a hostile client on the attach socket. The first byte of each packet chooses the descriptors
// that go with it; the others are sent unchanged.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "shm/base/check.hpp"
#include "shm/segment/segment.hpp"
#include "supervisor/plane/clients.hpp"
#include "tests/fuzz/packets.hpp"
#include "tests/support/unix_socket.hpp"

namespace shoal::supervisor {
namespace {

constexpr std::size_t kMostDescriptors = 7;  // three more than a message may carry

class Observer final : public ClientObserver {
 public:
  Status client_bound(Client& client) override {
    SHOAL_CHECK(!client.path.empty());
    return {};
  }
  void client_gone(Client&) override {}
  void client_forgotten(Client&) override {}
};

// Descriptors to choose from. The first are those of an honest client: a socket, which can be bound once, and two arenas.
std::array<UniqueFd, kMostDescriptors> make_descriptors() {
  UniqueFd input = create_memfd("input", 4096).value(), output = create_memfd("output", 4096).value();
  SHOAL_CHECK(seal(input, Seals::kOneWriter).ok() && seal(output, Seals::kFixedSize).ok());
  UniqueFd empty(::memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  SHOAL_CHECK(seal(empty, Seals::kOneWriter).ok());
  return {test::unbound_socket(),
          std::move(input),
          std::move(output),
          create_memfd("unsealed", 4096).value(),
          std::move(empty),
          UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)),
          UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))};
}

std::string make_directory() {
  std::string path = std::filesystem::temp_directory_path() / "shoal-fuzz-XXXXXX";
  SHOAL_CHECK(::mkdtemp(path.data()) != nullptr);
  return path;
}

// The daemon's end of the connection, in this process.
class Daemon {
 public:
  Daemon() { SHOAL_CHECK(clients_.listen().ok()); }
  ~Daemon() { std::filesystem::remove_all(path_); }

  UniqueFd connect() const {
    UniqueFd socket = test::connected_socket(directory_.attach_path(), SOCK_SEQPACKET | SOCK_NONBLOCK);
    SHOAL_CHECK(socket);
    return socket;
  }
  void send(int socket, std::span<const std::byte> packet) const {
    const auto choice = std::to_integer<std::size_t>(packet[0]);
    const std::size_t count = choice % (kMostDescriptors + 1);
    std::array<int, kMostDescriptors> chosen{};
    for (std::size_t i = 0; i < count; ++i) chosen[i] = descriptors_[(choice / 8 + i) % kMostDescriptors].get();
    iovec part{const_cast<std::byte*>(packet.data() + 1), packet.size() - 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof chosen)> room{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (count > 0) {
      message.msg_control = room.data();
      message.msg_controllen = CMSG_SPACE(count * sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(count * sizeof(int));
      std::memcpy(CMSG_DATA(header), chosen.data(), count * sizeof(int));
    }
    (void)::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);  // the daemon may have closed already
  }
  /// The next client's.
  void make_socket() { descriptors_[0] = test::unbound_socket(); }
  void serve() {
    pollfd ready{loop_.fd(), POLLIN, 0};
    while (::poll(&ready, 1, 0) > 0) loop_.run_ready();
  }
  std::size_t client_count() const { return clients_.count(); }

 private:
  std::string path_ = make_directory();
  std::array<UniqueFd, kMostDescriptors> descriptors_ = make_descriptors();
  SocketDirectory directory_ = SocketDirectory::open(path_).value();
  EventLoop loop_;
  Observer observer_;
  Logger log_{"fuzz"};
  const Clock clock_{};
  Timers timers_;
  Clients clients_{clock_, directory_, loop_, timers_, observer_, log_};
};

int lowest_free_descriptor() { return UniqueFd(::fcntl(0, F_DUPFD_CLOEXEC, 0)).get(); }

}  // namespace
}  // namespace shoal::supervisor

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ::setenv("SHOAL_LOG", "error", 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shoal;
  static supervisor::Daemon daemon;
  daemon.make_socket();
  const int lowest_before = supervisor::lowest_free_descriptor();
  UniqueFd socket = daemon.connect();
  for (const auto packet : fuzz::split_packets(std::as_bytes(std::span(data, size)))) {
    if (packet.empty()) continue;
    daemon.send(socket.get(), packet);
    daemon.serve();
  }
  // The daemon always answers with well-formed messages.
  while (true) {
    const auto answer = wire::receive_control(socket.get());
    if (!answer.ok()) SHOAL_CHECK(answer.status().code() == StatusCode::kUnavailable);
    if (!answer.ok() || !answer->has_value()) break;
  }
  socket.reset();
  daemon.serve();
  SHOAL_CHECK(daemon.client_count() == 0);
  // Another thread closes what the client sent.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (supervisor::lowest_free_descriptor() != lowest_before && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  SHOAL_CHECK(supervisor::lowest_free_descriptor() == lowest_before);
  return 0;
}
