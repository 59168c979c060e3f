#include "tests/support/hostile_lanes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <list>
#include <span>

#include "shm/base/format.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"
#include "shm/wire/status_page.hpp"
#include "tests/support/unix_socket.hpp"
#include "tests/support/zmtp.hpp"

namespace shoal::test {
namespace {

/// One worker: its lanes are sockets, and what it says on them is as good as what it says elsewhere.
class HostileWorker : public Hostile {
 public:
  HostileWorker(Chance chance, ControlMessage fork, pid_t supervisor)
      : Hostile(std::move(chance), std::move(fork.fds[0]), supervisor), fork_(std::move(fork)), spite_(chance_.below(3) * 10) {}

  [[noreturn]] void run() {
    std::string paths;
    for (std::uint64_t lane = 0; lane < fork_.a; ++lane) {
      const std::string path = format("{}-{}", fork_.text, lane);
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
    wire::Parcel message;
    for (wire::Dealer& lane : lanes_) {
      for (auto received = lane.receive(message); received.ok() && *received; received = lane.receive(message)) {
        const auto request = wire::decode_request(message[0]);
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

}  // namespace

void run_hostile_worker(Chance chance, ControlMessage fork, pid_t supervisor) {
  HostileWorker& worker = *new HostileWorker(std::move(chance), std::move(fork), supervisor);
  worker.run();
}

void run_hoarder(ControlMessage fork) {
  constexpr int kFrames = 800;  // of 1 MiB
  const std::string path = format("{}-0", fork.text);
  const UniqueFd listener = bound_socket(path, SOCK_STREAM);
  (void)wire::send_control(fork.fds[0].get(), {.kind = ControlKind::kReady, .id = fork.id, .text = path + '\n'});
  UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  pollfd asked{.fd = socket.get(), .events = POLLIN, .revents = 0};
  zmtp::Connection supervisor(std::move(socket));
  supervisor.shake_hands("DEALER");
  ::poll(&asked, 1, -1);
  const std::string frame = zmtp::long_frame(zmtp::kMore, std::string(1 << 20, '\0'));
  for (int i = 0; i < kFrames; ++i) (void)supervisor.send_all(frame);
  while (true) ::pause();
}

void run_babbler(ControlMessage fork, wire::Kind kind, std::uint16_t status) {
  const std::string path = format("{}-0", fork.text);
  wire::MessageContext context;
  wire::Dealer lane = wire::Dealer::bind(context, path).value();
  (void)wire::send_control(fork.fds[0].get(), {.kind = ControlKind::kReady, .id = fork.id, .text = path + '\n'});
  wire::Bundle bundle;
  for (std::uint64_t request = 1; bundle.has_room_for(sizeof(wire::ReplyHeader)); ++request) {
    const wire::ReplyHeader header{.magic = wire::kMagic,
                                   .version = wire::kVersionMajor,
                                   .kind = static_cast<std::uint16_t>(kind),
                                   .request_id = request,
                                   .incarnation = fork.id,
                                   .attempt = 1,
                                   .status = status};
    bundle.add(std::as_bytes(std::span(&header, 1)));
  }
  while (true) (void)lane.send(bundle.message(), wire::Wait::kYes);
}

void run_squatter(ControlMessage fork) {
  constexpr std::uint64_t kNames = 400;
  const std::string path = format("{}-0", fork.text);
  const UniqueFd lane = bound_socket(path, SOCK_STREAM);
  const std::string directory = fork.text.substr(0, fork.text.rfind('/'));
  std::vector<UniqueFd> bound;
  for (std::uint64_t next = fork.id + 1; next < fork.id + kNames; ++next)
    bound.push_back(bound_socket(format("{}/w{}-0", directory, next), SOCK_STREAM));
  std::vector<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) seen.push_back(entry.path().filename());
  for (const std::string& name : seen) {  // the same with the numbers of the next workers
    if (!name.starts_with('w') || name.find('-') == name.npos) continue;
    for (std::uint64_t next = fork.id + 1; next < fork.id + 10; ++next)
      bound.push_back(bound_socket(format("{}/w{}{}", directory, next, name.substr(name.find('-'))), SOCK_STREAM));
  }
  (void)wire::send_control(fork.fds[0].get(), {.kind = ControlKind::kReady, .id = fork.id, .text = path + '\n'});
  while (true) ::pause();
}

}  // namespace shoal::test
