// A Transport whose messages lie in queues until the test delivers them.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shm/wire/socket.hpp"

namespace shoal::test {

using Bytes = std::vector<std::byte>;
using SimMessage = std::vector<Bytes>;  // frames

///   Threads  thread-bound
class SimTransport final : public wire::Transport {
 public:
  // ---- the supervisor's end ----
  void limit_frames(std::uint64_t) override {}
  Status connect(const std::string&, wire::PeerId peer) override {
    peers_[peer];
    return {};
  }
  void disconnect(const std::string&, wire::PeerId peer) override { peers_.erase(peer); }
  using Transport::send;
  Status send(wire::PeerId peer, wire::Frames head, const wire::Message* tail, std::size_t tail_first, wire::Unsent*) override {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return Status(StatusCode::kUnavailable, "no such peer");
    if (found->second.is_full) return Status(StatusCode::kOverloaded, "its queue is full");
    SimMessage message;
    for (const auto& frame : head) message.emplace_back(frame.begin(), frame.end());
    for (std::size_t i = tail_first; tail && i < tail->size(); ++i) message.emplace_back((*tail)[i].begin(), (*tail)[i].end());
    found->second.sent.push_back(std::move(message));
    return {};
  }
  Result<bool> receive(wire::PeerId& peer, wire::Message& message) override {
    if (arrived_.empty()) return false;
    auto [from, frames] = std::move(arrived_.front());
    arrived_.pop_front();
    std::vector<std::span<const std::byte>> views(frames.begin(), frames.end());
    peer = from;
    message = wire::Message::copy_of(views).value();
    return true;
  }
  void close_after_flush(std::chrono::milliseconds) override {}

  // ---- the peers' end ----
  bool is_connected(wire::PeerId peer) const { return peers_.contains(peer); }
  void arrive(wire::PeerId peer, SimMessage message) { arrived_.emplace_back(peer, std::move(message)); }
  /// The next message for that peer, which it reads now.
  std::optional<SimMessage> take(wire::PeerId peer) {
    const auto found = peers_.find(peer);
    if (found == peers_.end() || found->second.sent.empty()) return std::nullopt;
    SimMessage message = std::move(found->second.sent.front());
    found->second.sent.pop_front();
    return message;
  }
  /// What was sent to a connected peer, and it has not read.
  const std::deque<SimMessage>& unread(wire::PeerId peer) const { return peers_.at(peer).sent; }
  void set_full(wire::PeerId peer, bool is_full) {
    if (const auto found = peers_.find(peer); found != peers_.end()) found->second.is_full = is_full;
  }

 private:
  struct Peer {
    std::deque<SimMessage> sent;  // not read yet
    bool is_full = false;
  };
  std::map<wire::PeerId, Peer> peers_;
  std::deque<std::pair<wire::PeerId, SimMessage>> arrived_;
};

}  // namespace shoal::test
