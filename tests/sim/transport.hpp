// A Transport whose messages lie in queues until the test delivers them.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shm/wire/transport.hpp"

namespace shoal::test {

using Bytes = std::vector<std::byte>;
using SimMessage = std::vector<Bytes>;  // frames

///   Threads  thread-bound
class SimTransport final : public wire::Transport {
 public:
  // ---- the supervisor's end ----
  void limit_frames(std::uint64_t) override {}
  Status connect(const std::string&, wire::PeerId peer, bool) override {
    peers_[peer];
    return {};
  }
  bool disconnect(const std::string&, wire::PeerId peer) override {
    deliver(peer);
    peers_.erase(peer);
    return false;
  }
  using Outbox::push;
  Status push(wire::PeerId peer, wire::Frames frames, const wire::Payload& payload, wire::Unsent*) override {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return Status(StatusCode::kUnavailable, "no such peer");
    SimMessage message;
    for (const auto& frame : frames) message.emplace_back(frame.begin(), frame.end());
    for (std::size_t i = 0; i < payload.size(); ++i) message.emplace_back(payload[i].begin(), payload[i].end());
    if (on_pushed) on_pushed(message);
    found->second.pushed.push_back(std::move(message));
    return {};
  }
  std::span<const Lost> flush() override {
    for (auto& [peer, state] : peers_) deliver(peer);
    reported_ = std::exchange(lost_, {});
    return reported_;
  }
  Result<bool> receive(wire::PeerId& peer, wire::Parcel& parcel) override {
    while (!arrived_.empty() && arrived_.front().is_dropped && arrived_.front().is_dropped()) arrived_.pop_front();
    if (arrived_.empty()) return false;
    const SimMessage frames = std::move(arrived_.front().frames);
    peer = arrived_.front().peer;
    arrived_.pop_front();
    parcel.head = frames.empty() ? Bytes() : frames.front();
    const std::vector<std::span<const std::byte>> behind(frames.begin() + (frames.empty() ? 0 : 1), frames.end());
    parcel.payload = wire::Payload::copy_of(behind);
    return true;
  }
  void close_after_flush(std::chrono::milliseconds) override {}

  // ---- the peers' end ----
  std::function<void(const SimMessage&)> on_pushed;  // may be empty, like the next one
  std::function<void(wire::PeerId)> on_lost;
  bool is_connected(wire::PeerId peer) const { return peers_.contains(peer); }
  /// `is_dropped` (may be empty): asked when the supervisor is about to receive the message.
  void arrive(wire::PeerId peer, SimMessage message, std::function<bool()> is_dropped = {}) {
    arrived_.push_back({peer, std::move(message), std::move(is_dropped)});
  }
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
  /// What waits for the flush to a connected peer.
  const std::deque<SimMessage>& pushed(wire::PeerId peer) const { return peers_.at(peer).pushed; }
  /// What was sent to a connected peer and did not reach it.
  const std::deque<SimMessage>& lost(wire::PeerId peer) const { return peers_.at(peer).lost; }
  void set_full(wire::PeerId peer, bool is_full) {
    if (const auto found = peers_.find(peer); found != peers_.end()) found->second.is_full = is_full;
  }

 private:
  struct Peer {
    std::deque<SimMessage> pushed;  // not flushed yet
    std::deque<SimMessage> sent;    // not read yet
    std::deque<SimMessage> lost;    // it will never read them
    bool is_full = false;
  };
  struct Arrived {
    wire::PeerId peer;
    SimMessage frames;
    std::function<bool()> is_dropped;
  };
  // A peer that is full gets nothing, and is reported.
  void deliver(wire::PeerId peer) {
    const auto found = peers_.find(peer);
    if (found == peers_.end() || found->second.pushed.empty()) return;
    std::deque<SimMessage> pushed = std::exchange(found->second.pushed, {});
    if (found->second.is_full) {
      std::ranges::move(pushed, std::back_inserter(found->second.lost));
      if (on_lost) on_lost(peer);
      return void(lost_.push_back({peer, Status(StatusCode::kOverloaded, "its queue is full")}));
    }
    std::ranges::move(pushed, std::back_inserter(found->second.sent));
  }

  std::map<wire::PeerId, Peer> peers_;
  std::vector<Lost> lost_, reported_;
  std::deque<Arrived> arrived_;
};

}  // namespace shoal::test
