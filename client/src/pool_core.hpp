// PoolCore: the implementation of Pool. It has one mutex; a waiting thread drives the sockets for all threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/src/arena.hpp"
#include "client/src/connection.hpp"
#include "client/src/description.hpp"
#include "client/src/fork_guard.hpp"
#include "client/src/request.hpp"
#include "shm/base/mutex.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"
#include "shoal/pool.hpp"

namespace shoal::client {

/// The rules:
///  - No thread holds the mutex while it waits. The one *driver* polls the sockets' descriptors without it.
///  - A send may consume the edge of ZeroMQ's descriptor, so a thread that sends also receives afterwards (progress()).
///  - A thread that completes another thread's target wakes it: a follower by its condition, the driver by wake_fd_.
///  - A driver that leaves wakes one follower, which becomes the driver.
///  - A request that was sent stays in requests_ until its slots are released. One that must wait is in parked_, until it is sent
///    or fails. Each gets its outcome exactly once, at that time or before.
///  - The daemon enforces deadlines. If its answer is overdue, the waiting thread gives the request its outcome (expire()).
///  - A thread that waits without a deadline checks from time to time that the daemon sends anything, and pings it if not.
///   Threads  thread-safe
class PoolCore : public std::enable_shared_from_this<PoolCore> {
 public:
  static Result<std::shared_ptr<PoolCore>> connect(PoolOptions options);
  ~PoolCore();

  std::shared_ptr<PendingRequest> submit(std::string_view model, Tensors inputs, SubmitOptions options);
  Result<ModelInfo> describe(std::string_view model, std::uint64_t version);
  Result<Tensor> loan(DType dtype, const Shape& shape);
  /// Sends a control request and waits for its answer.
  Result<std::string> ask(std::string json, std::vector<std::byte>* attachment = nullptr, bool ends_daemon = false);
  Result<ModelChange> change(const ChangeRequest& change);
  void close();
  /// This process is a forked child of the one that made the pool.
  bool in_forked_child() const { return fork_guard_.in_child(); }

  /// Waits until `target` is done, or until `until_ns`. True if it is done.
  bool wait(const Completion& target, std::uint64_t until_ns);
  /// The same for a request, which gets its outcome if it expires meanwhile.
  bool wait_for_outcome(PendingRequest& request, std::uint64_t until_ns);
  /// Waits until the request has its outcome. A request without a deadline fails if the model's default timeout is over and the
  /// daemon is silent. False only in a forked child.
  bool wait_for_outcome(PendingRequest& request);
  /// Gives an unanswered request its outcome if its deadline is over.
  void expire(PendingRequest& request);
  /// Sends and receives without waiting. Does nothing while another thread holds the mutex.
  void poll();
  void cancel(PendingRequest& request);
  /// Called when the user no longer needs the outcome.
  void give_up(PendingRequest& request);

 private:
  struct ModelEntry {
    std::shared_ptr<const Description> description;                              ///< null until known
    std::uint64_t describe_seq = 0;                                              ///< of the unanswered `describe`; 0 = none
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> output_bytes;  ///< sizes in earlier replies, by shape_key
  };
  struct Follower {
    const Completion* target;
    Condition woken;
  };

  PoolCore(PoolOptions options, std::shared_ptr<Arena> input, UniqueFd wake_fd);
  Status usable() const;
  /// Waits while the daemon gives signs of life. False if it has been silent for control_timeout, or in a forked child.
  bool wait_while_alive(const Completion& target);
  Result<std::string> answer_of(ControlCall& call);
  bool is_overdue(const PendingRequest& request) SHOAL_EXCLUDES(mutex_);
  Status silence(std::string_view what) SHOAL_REQUIRES(mutex_);
  Status place_inputs(Tensors inputs, PendingRequest& request);

  void progress() SHOAL_REQUIRES(mutex_);
  void advance_connection() SHOAL_REQUIRES(mutex_);
  Status begin_connection(std::uint64_t give_up_at_ns) SHOAL_REQUIRES(mutex_);
  void on_ready() SHOAL_REQUIRES(mutex_);
  void lose_connection(const Status& why) SHOAL_REQUIRES(mutex_);
  void fail_everything(const Status& why) SHOAL_REQUIRES(mutex_);
  void receive_all() SHOAL_REQUIRES(mutex_);
  void dispatch(const wire::Message& message) SHOAL_REQUIRES(mutex_);
  void handle_reply(const wire::Message& message) SHOAL_REQUIRES(mutex_);
  void take_reply(const wire::Message& message, const wire::Reply& reply, const std::shared_ptr<PendingRequest>& request)
      SHOAL_REQUIRES(mutex_);
  void handle_release(const wire::Message& message) SHOAL_REQUIRES(mutex_);
  void handle_control_reply(const wire::Message& message) SHOAL_REQUIRES(mutex_);
  void handle_description(const ModelKey& model, ModelEntry& entry, const Result<std::string>& answer) SHOAL_REQUIRES(mutex_);
  void park(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  void look_again(const std::shared_ptr<PendingRequest>& request, ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  void expire_parked(std::uint64_t now_ns) SHOAL_REQUIRES(mutex_);
  Result<Tensors> read_outputs(const wire::Message& message, const wire::Reply& reply, const PendingRequest& request)
      SHOAL_REQUIRES(mutex_);

  void route(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  void send_request(const std::shared_ptr<PendingRequest>& request, ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  void offer_outputs(PendingRequest& request, const ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  void send_cancel(PendingRequest& request) SHOAL_REQUIRES(mutex_);
  std::shared_ptr<ControlCall> start_call(std::string json) SHOAL_REQUIRES(mutex_);
  void send_call(ControlCall& call) SHOAL_REQUIRES(mutex_);
  std::shared_ptr<ControlCall> ask_description(const ModelKey& model, ModelEntry& entry) SHOAL_REQUIRES(mutex_);

  bool is_ready() const SHOAL_REQUIRES(mutex_) { return connection_ && connection_->is_ready(); }
  void complete(PendingRequest& request, Outcome outcome) SHOAL_REQUIRES(mutex_);
  void fail(PendingRequest& request, Status status) SHOAL_REQUIRES(mutex_);
  void finish_call(const std::shared_ptr<ControlCall>& call, Result<std::string> answer) SHOAL_REQUIRES(mutex_);
  void wake_waiters_of(const Completion& target) SHOAL_REQUIRES(mutex_);
  void poll_descriptors(std::uint64_t until_ns) SHOAL_REQUIRES(mutex_);
  std::uint64_t next_timer_ns() const SHOAL_REQUIRES(mutex_);

  const PoolOptions options_;
  const ForkGuard fork_guard_;
  const std::shared_ptr<Arena> input_;  ///< null if this client cannot submit requests
  const UniqueFd wake_fd_;              ///< eventfd that ends the driver's poll

  Mutex mutex_;
  std::shared_ptr<Arena> output_ SHOAL_GUARDED_BY(mutex_);  ///< each connection has a new one
  wire::MessageContext context_;
  std::unique_ptr<Connection> connection_ SHOAL_GUARDED_BY(mutex_);
  std::uint64_t next_attempt_ns_ SHOAL_GUARDED_BY(mutex_) = 0;  ///< to connect; used while there is no connection
  std::uint64_t give_up_reconnecting_ns_ SHOAL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_expiry_ns_ SHOAL_GUARDED_BY(mutex_) = kForever;  ///< not later than the first deadline of a parked request
  /// When the attach socket was last read. It is not read for every request.
  std::uint64_t attach_read_ns_ SHOAL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ SHOAL_GUARDED_BY(mutex_) = false;

  std::uint64_t last_seq_ SHOAL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<PendingRequest>> requests_
      SHOAL_GUARDED_BY(mutex_);  ///< sent, slots not released; by seq
  std::map<std::uint64_t, std::shared_ptr<PendingRequest>> parked_
      SHOAL_GUARDED_BY(mutex_);  ///< wait for a daemon or for their model's description, none is done; by seq
  std::unordered_map<std::uint64_t, std::shared_ptr<ControlCall>> calls_ SHOAL_GUARDED_BY(mutex_);  ///< unanswered, by seq
  std::map<ModelKey, ModelEntry> models_ SHOAL_GUARDED_BY(mutex_);
  std::uint64_t heard_ SHOAL_GUARDED_BY(mutex_) = 0;            ///< number of messages received from the daemon
  std::shared_ptr<ControlCall> ping_ SHOAL_GUARDED_BY(mutex_);  ///< the last one; at most one is unanswered
  wire::Message incoming_ SHOAL_GUARDED_BY(mutex_);
  wire::Request outgoing_ SHOAL_GUARDED_BY(mutex_);  ///< reused, so that sending does not allocate in the long run
  std::vector<std::byte> frame_ SHOAL_GUARDED_BY(mutex_);
  std::vector<std::span<const std::byte>> frames_ SHOAL_GUARDED_BY(mutex_);

  bool is_driven_ SHOAL_GUARDED_BY(mutex_) = false;
  const Completion* driver_target_ SHOAL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Follower*> followers_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::client
