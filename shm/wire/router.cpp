// The supervisor's socket.
#include <sys/stat.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "shm/wire/socket.hpp"
#include "shm/wire/zmq_parts.hpp"

namespace shoal::wire {
namespace {

constexpr std::size_t kRoutingIdBytes = 9;

std::array<std::byte, kRoutingIdBytes> routing_id(PeerId peer) {
  std::array<std::byte, kRoutingIdBytes> id;
  id[0] = std::byte{'S'};  // ZeroMQ reserves ids that begin with 0
  std::memcpy(id.data() + 1, &peer, sizeof peer);
  return id;
}

}  // namespace

Result<Router> Router::create(MessageContext& context, bool opens_bundles) {
  SHOAL_ASSIGN_OR_RETURN(void* handle, open(context, ZMQ_ROUTER));
  Router router(handle);
  router.opens_bundles_ = opens_bundles;
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_LINGER, kLingerMs));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_SNDHWM, kHighWaterMark));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_RCVHWM, kMostReceived));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_ROUTER_MANDATORY, 1));
  // The messages of a dead peer must not be kept for the next peer at its path, so libzmq may not reconnect. The value is 24 days
  // in milliseconds. With -1, which means never, libzmq 4.3.4 disconnects a dead peer itself, during any call and in the middle
  // of its message. The rest of that message is then mixed with another peer's, or aborts the process.
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_RECONNECT_IVL, std::numeric_limits<int>::max()));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_HANDSHAKE_IVL, 2000));
  SHOAL_RETURN_IF_ERROR(router.set(ZMQ_MAXMSGSIZE, kMaxFrameBytes));
  static std::array<std::byte, 1 << 20> zeros;  // never written, so it takes no memory
  auto last = std::make_shared<ZmqPayload>();
  last->message.frames_.emplace_back();
  zmq_msg_t* frame = as_zmq(&last->message.frames_.back());
  ::zmq_msg_init(frame);
  const auto keep = [](void*, void*) {};
  if (::zmq_msg_init_data(frame, zeros.data(), zeros.size(), keep, nullptr) != 0) return zmq_status("make", "a message");
  router.last_message_ = Payload(std::move(last));
  return router;
}

void Router::limit_frames(std::uint64_t bytes) {
  constexpr std::uint64_t kMost = kMaxFrameBytes;
  (void)set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(bytes == 0 ? kMost : std::min(bytes, kMost)));
}

Status Router::connect(const std::string& path, PeerId peer, bool takes_bundles) {
  SHOAL_RETURN_IF_ERROR(check_socket_path(path));
  // The thread of libzmq would follow a link, and wait for a file system that is dead. A process of our user could still put a
  // link there in between; but that one could kill us, too.
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) return status_from_errno("connect to", path, errno);
  if (!S_ISSOCK(file.st_mode)) return invalid_argument("connect to {}: it is not a socket", path);
  const auto id = routing_id(peer);
  if (::zmq_setsockopt(handle_, ZMQ_CONNECT_ROUTING_ID, id.data(), id.size()) != 0) return zmq_status("name the peer at", path);
  if (::zmq_connect(handle_, endpoint(path).c_str()) != 0) return zmq_status("connect to", path);
  peers_[peer].takes_bundles = takes_bundles;
  return {};
}

bool Router::disconnect(const std::string& path, PeerId peer) {
  // libzmq 4.3.4 keeps the address of a peer that it cut off under the path. The next peer at that path would be disconnected
  // instead of it. So the entry, about 200 bytes, stays.
  // It also loses the memory of a message that the peer has not finished, if it sends the last of the queued messages before it
  // gets to the end of the disconnect. So the last one is longer than the connection's buffer. Nobody reads it.
  const auto found = peers_.find(peer);
  const bool was_connected = found != peers_.end();
  if (was_connected) {
    send_bundle(peer, found->second);
    peers_.erase(found);
  }
  const Status reached = send(peer, Frames(), last_message_, nullptr);
  if (reached.code() == StatusCode::kUnavailable) return was_connected;
  ::zmq_disconnect(handle_, endpoint(path).c_str());
  return false;
}

Status Router::send(PeerId peer, Frames frames, const Payload& payload, Unsent* unsent) {
  return send_frames(routing_id(peer), frames, payload, Wait::kNo, unsent);
}

Status Router::push(PeerId id, Frames frames, const Payload& payload, Unsent* unsent) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return unavailable("the peer's message socket is gone");
  Peer& peer = found->second;
  if (peer.takes_bundles && frames.size() == 1 && payload.empty() && !frames[0].empty()) {
    if (!peer.bundle.has_room_for(frames[0].size())) send_bundle(id, peer);
    if (peer.bundle.has_room_for(frames[0].size())) return add_to_bundle(id, peer, frames[0], unsent);
  }
  send_bundle(id, peer);  // first, so that the messages stay in their order
  return send(id, frames, payload, unsent);
}

Status Router::add_to_bundle(PeerId id, Peer& peer, std::span<const std::byte> head, Unsent* unsent) try {
  if (!peer.is_pushed) {
    pushed_.push_back(id);
    peer.is_pushed = true;
    if (!spare_.empty()) {
      peer.bundle = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  peer.bundle.add(head);
  peer.unsent = unsent;
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("sending a message");
}

void Router::send_bundle(PeerId id, Peer& peer) {
  if (peer.bundle.empty()) return;
  const auto message = peer.bundle.message();
  Status sent = send(id, Frames(&message, 1), {}, peer.unsent);
  if (!sent.ok()) lost_.push_back({id, std::move(sent)});
  peer.bundle.clear();
}

std::span<const Outbox::Lost> Router::flush() {
  for (const PeerId id : pushed_) {
    const auto found = peers_.find(id);
    if (found == peers_.end()) continue;
    send_bundle(id, found->second);
    found->second.is_pushed = false;
    spare_.push_back(std::exchange(found->second.bundle, {}));  // so that only the peers of one turn have such memory
  }
  pushed_.clear();
  reported_.clear();
  std::swap(reported_, lost_);
  return reported_;
}

Result<bool> Router::receive(PeerId& peer, Parcel& parcel) {
  SHOAL_ASSIGN_OR_RETURN(const bool received, receive_parcel(parcel, 1, Wait::kNo));
  if (!received) return false;
  const auto id = first_frame();
  SHOAL_CHECK(id.size() == kRoutingIdBytes);  // connect() named every peer
  std::memcpy(&peer, id.data() + 1, sizeof peer);
  return true;
}

}  // namespace shoal::wire
