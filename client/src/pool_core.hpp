// PoolCore: everything behind Pool. One mutex; whoever waits drives the socket for all.
#pragma once

#include <cstdint>
#include <deque>
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
///  - The mutex is never held while something is waited for. The one *driver* polls the sockets' descriptors without it.
///  - Every send may swallow the edge of ZeroMQ's descriptor, so whoever sends receives afterwards (progress()).
///  - A thread that finishes somebody else's work wakes him: a follower by its condition, the driver by wake_fd_.
///  - A driver that leaves wakes one follower, who drives on.
///  - A request stays in requests_ until its slots are released; its outcome is given exactly once, before or at that time.
///  - The daemon keeps deadlines. Whoever looks at a request that is over for longer than an answer takes does not wait for it.
///   Threads  thread-safe
class PoolCore : public std::enable_shared_from_this<PoolCore> {
 public:
  static Result<std::shared_ptr<PoolCore>> connect(PoolOptions options);
  ~PoolCore();

  std::shared_ptr<Request> submit(std::string_view model, Tensors inputs, SubmitOptions options);
  Result<ModelInfo> describe(std::string_view model, std::uint64_t version);
  Result<Tensor> loan(DType dtype, const Shape& shape);
  /// One question of the control protocol.
  Result<std::string> ask(std::string json, std::vector<std::byte>* attachment = nullptr, bool ends_daemon = false);
  Result<ModelChange> change(const ChangeRequest& change);
  void close();

  /// Drives until `target` is done or the time has come. True when it is done.
  bool wait(const Completion& target, std::uint64_t until_ns);
  /// Likewise; what expires meanwhile has its outcome.
  bool wait_for_outcome(Request& request, std::uint64_t until_ns);
  /// Gives a request its outcome whose time is over and that nobody answered.
  void expire(Request& request);
  /// Moves everything on without waiting; does nothing while another thread is at it.
  void poll();
  void cancel(Request& request);
  /// Nobody will look at the outcome any more.
  void give_up(Request& request);

 private:
  struct ModelEntry {
    std::shared_ptr<const Description> description;                              ///< null until known
    std::uint64_t describe_seq = 0;                                              ///< of the question under way; 0 = none
    std::deque<std::shared_ptr<Request>> parked;                                 ///< wait for the description
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> output_bytes;  ///< learned from replies, by shape_key
  };
  struct Follower {
    const Completion* target;
    Condition woken;
  };

  PoolCore(PoolOptions options, std::shared_ptr<Arena> input, UniqueFd wake_fd);
  Status usable() const;
  Status place_inputs(Tensors inputs, Request& request);

  void progress() SHOAL_REQUIRES(mutex_);
  void advance_connection() SHOAL_REQUIRES(mutex_);
  Status begin_connection() SHOAL_REQUIRES(mutex_);
  void on_ready() SHOAL_REQUIRES(mutex_);
  void lose_connection(const Status& why) SHOAL_REQUIRES(mutex_);
  void fail_everything(const Status& why) SHOAL_REQUIRES(mutex_);
  void receive_all() SHOAL_REQUIRES(mutex_);
  void dispatch(const wire::Message& message) SHOAL_REQUIRES(mutex_);
  void handle_reply(const wire::Message& message) SHOAL_REQUIRES(mutex_);
  void take_reply(const wire::Message& message, const wire::Reply& reply, const std::shared_ptr<Request>& request)
      SHOAL_REQUIRES(mutex_);
  void handle_release(const wire::Message& message) SHOAL_REQUIRES(mutex_);
  void handle_control_reply(const wire::Message& message) SHOAL_REQUIRES(mutex_);
  void handle_description(ModelEntry& entry, const Result<std::string>& answer) SHOAL_REQUIRES(mutex_);
  void park(const std::shared_ptr<Request>& request) SHOAL_REQUIRES(mutex_);
  void look_again(const std::shared_ptr<Request>& request, ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  void expire_parked(std::uint64_t now_ns) SHOAL_REQUIRES(mutex_);
  Result<Tensors> read_outputs(const wire::Message& message, const wire::Reply& reply, const Request& request)
      SHOAL_REQUIRES(mutex_);

  void route(const std::shared_ptr<Request>& request) SHOAL_REQUIRES(mutex_);
  void send_request(const std::shared_ptr<Request>& request, ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  void offer_outputs(Request& request, const ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  void send_cancel(Request& request) SHOAL_REQUIRES(mutex_);
  std::shared_ptr<ControlCall> start_call(std::string json) SHOAL_REQUIRES(mutex_);
  void send_call(ControlCall& call) SHOAL_REQUIRES(mutex_);
  std::shared_ptr<ControlCall> ask_description(const ModelKey& model, ModelEntry& entry) SHOAL_REQUIRES(mutex_);

  bool is_ready() const SHOAL_REQUIRES(mutex_) { return connection_ && connection_->is_ready(); }
  void complete(Request& request, Outcome outcome) SHOAL_REQUIRES(mutex_);
  void fail(Request& request, Status status, Ran ran = Ran::kNo) SHOAL_REQUIRES(mutex_);
  void finish_call(const std::shared_ptr<ControlCall>& call, Result<std::string> answer) SHOAL_REQUIRES(mutex_);
  void wake_waiters_of(const Completion& target) SHOAL_REQUIRES(mutex_);
  void poll_descriptors(std::uint64_t until_ns) SHOAL_REQUIRES(mutex_);
  std::uint64_t next_timer_ns() const SHOAL_REQUIRES(mutex_);

  const PoolOptions options_;
  const ForkGuard fork_guard_;
  const std::shared_ptr<Arena> input_;  ///< null when this client submits nothing
  const UniqueFd wake_fd_;              ///< eventfd: ends the driver's poll

  Mutex mutex_;
  std::shared_ptr<Arena> output_ SHOAL_GUARDED_BY(mutex_);  ///< a new one for every connection
  wire::MessageContext context_;
  std::unique_ptr<Connection> connection_ SHOAL_GUARDED_BY(mutex_);
  std::uint64_t next_attempt_ns_ SHOAL_GUARDED_BY(mutex_) = 0;  ///< to connect, while there is no connection
  std::uint64_t give_up_reconnecting_ns_ SHOAL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_expiry_ns_ SHOAL_GUARDED_BY(mutex_) = kForever;  ///< of a parked request, or of one that was
  std::uint64_t attach_read_ns_ SHOAL_GUARDED_BY(mutex_) =
      0;  ///< when the attach socket was last looked at: not for every request
  bool is_closed_ SHOAL_GUARDED_BY(mutex_) = false;

  std::uint64_t last_seq_ SHOAL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::uint64_t, std::shared_ptr<Request>> requests_
      SHOAL_GUARDED_BY(mutex_);  ///< sent, their slots not released yet; by seq
  std::unordered_map<std::uint64_t, std::shared_ptr<ControlCall>> calls_ SHOAL_GUARDED_BY(mutex_);  ///< unanswered, by seq
  std::map<ModelKey, ModelEntry> models_ SHOAL_GUARDED_BY(mutex_);
  wire::Message incoming_ SHOAL_GUARDED_BY(mutex_);
  wire::Request outgoing_ SHOAL_GUARDED_BY(mutex_);  ///< reused, so that sending allocates nothing in the long run
  std::vector<std::byte> frame_ SHOAL_GUARDED_BY(mutex_);
  std::vector<std::span<const std::byte>> frames_ SHOAL_GUARDED_BY(mutex_);

  bool is_driven_ SHOAL_GUARDED_BY(mutex_) = false;
  const Completion* driver_target_ SHOAL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Follower*> followers_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::client
