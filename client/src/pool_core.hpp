// PoolCore: the implementation of Pool. It has one mutex; a waiting thread drives the sockets for all threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/src/arena.hpp"
#include "client/src/connection.hpp"
#include "client/src/description.hpp"
#include "client/src/request.hpp"
#include "client/src/shrink_rule.hpp"
#include "shm/base/fork_guard.hpp"
#include "shm/base/mutex.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/completion/client_core.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/socket.hpp"
#include "shoal/pool.hpp"

namespace shoal::client {

using completion::Waitable;

/// The rules:
///  - No thread holds the mutex while it waits, nor while it copies tensors, except into messages (pool_copies.cpp). The one
///    *driver* polls the sockets' descriptors without it.
///  - A send may consume the edge of ZeroMQ's descriptor. So a thread that sends while there is a driver receives afterwards
///    (progress()), and a driver does so before it polls.
///  - A thread that completes another thread's target wakes it: a follower by its condition, the driver by wake_fd_.
///  - A driver that leaves or copies wakes one follower, which becomes the driver. One that leaves does so even if an allocation
///    failed in it.
///  - A request that was sent stays in requests_ until its slots are released. One that must wait is in parked_, until it is sent
///    or fails. Each gets its outcome exactly once, at that time or before.
///  - The daemon enforces deadlines. If its answer is overdue, the waiting thread gives the request its outcome (expire()).
///  - There may be three connections to one daemon: requests are sent by connection_. next_ attaches anew with a smaller input
///    arena, and becomes connection_ when it is ready. old_ was left; it goes when its last request is released.
///  - A thread that waits without a deadline checks from time to time that the daemon sends anything, and pings it if not.
///   Threads  thread-safe
class PoolCore final : public completion::ClientCore {
 public:
  static Result<std::shared_ptr<PoolCore>> connect(PoolOptions options);
  ~PoolCore() override;

  void submit(completion::Submission submission, completion::HandleSlot& handle) override;
  /// A step of a session, if `session` is not null.
  void submit(completion::Submission submission, std::shared_ptr<SessionState> session, completion::HandleSlot& handle);
  Result<ModelInfo> describe(std::string_view model, std::uint64_t version) override;
  std::shared_ptr<void> know() override;
  /// As known_info().
  std::shared_ptr<const Description> known_description(std::string_view model, std::uint64_t version, void* known);
  std::shared_ptr<const ModelInfo> known_info(std::string_view model, std::uint64_t version, void* known) override;
  Result<Tensor> loan(DType dtype, const Shape& shape) override;
  Result<Tensor> loan_output(DType dtype, const Shape& shape) override;
  Status usable() override;
  void wait(completion::ReadyList& list, std::chrono::steady_clock::time_point until, const std::stop_token& stop) override;
  void wake(completion::ReadyList& list) override;
  PoolUsage usage();
  Result<std::shared_ptr<SessionState>> open_session(std::string_view model);
  void close_session(SessionState& session);
  Status reset_session(SessionState& session);
  /// Sends a control request and waits for its answer.
  Result<std::string> ask(std::string json, std::vector<std::byte>* attachment = nullptr, bool ends_daemon = false);
  Result<ModelChange> change(const ChangeRequest& change);
  void close();
  /// This process is a forked child of the one that made the pool.
  bool in_forked_child() const { return fork_guard_.in_child(); }

  /// Waits until `target` is done, until `until_ns`, or until a stop is requested and the caller wakes this thread. True if it is
  /// done.
  bool wait(const Waitable& target, std::uint64_t until_ns, const std::stop_token& stop = {});
  /// The same for a request, which gets its outcome if it expires meanwhile. A stop wakes this thread.
  bool wait_for_outcome(PendingRequest& request, std::uint64_t until_ns, const std::stop_token& stop = {});
  /// Waits until the request has its outcome. A request without a deadline fails if the model's default timeout is over and the
  /// daemon is silent. False only in a forked child.
  bool wait_for_outcome(PendingRequest& request);
  /// Gives an unanswered request its outcome if its deadline is over.
  void expire(PendingRequest& request);
  /// Sends and receives without waiting. Does nothing while another thread holds the mutex.
  void poll() override;
  void cancel(PendingRequest& request);
  /// Told at once if the request is done. Not in a forked child.
  void add_notice(PendingRequest& request, std::shared_ptr<completion::Notice> notice);
  /// Called when the user no longer needs the outcome.
  void give_up(PendingRequest& request);
  /// Whether only the caller has the request, which is complete and whose slots are released.
  bool is_unshared(const std::shared_ptr<PendingRequest>& request);

 private:
  /// What nobody uses any more. It is destroyed without the mutex: unmapping an arena takes half a second per GiB, and a caller's
  /// deleter takes as long as it likes.
  struct Left {
    std::array<std::shared_ptr<Arena>, 2> arenas;
    std::array<std::shared_ptr<void>, 16> owners;  ///< no more at a time, so that the list of the core keeps its room
    bool is_empty() const { return !arenas[0] && !arenas[1] && !owners[0]; }
  };

  /// Holds the mutex for a scope, and then destroys what was left.
  class SHOAL_SCOPED_CAPABILITY Lock {
   public:
    explicit Lock(PoolCore& core) SHOAL_ACQUIRE(core.mutex_) : core_(core) { core_.mutex_.lock(); }
    /// Takes over a mutex that this thread has already locked.
    Lock(PoolCore& core, std::adopt_lock_t) SHOAL_REQUIRES(core.mutex_) : core_(core) {}
    ~Lock() SHOAL_RELEASE() SHOAL_NO_THREAD_SAFETY_ANALYSIS {
      for (bool has_more = true; has_more;) {
        {
          const Left left = core_.take_left();
          has_more = !core_.left_owners_.empty();
          core_.mutex_.unlock();
        }
        if (has_more) core_.mutex_.lock();
      }
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    PoolCore& core_;
  };

  struct ModelEntry {
    std::shared_ptr<const Description> description;                              ///< null until known
    std::uint64_t describe_seq = 0;                                              ///< of the unanswered `describe`; 0 = none
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> output_bytes;  ///< sizes in earlier replies, by shape_key
  };
  /// Where the entry of a Model lies. Right as long as no entry was erased since.
  struct KnownModel {
    ModelEntry* entry = nullptr;
    std::uint64_t erasures = 0;
  };
  struct Follower {
    const Waitable* target;
    Condition woken;
  };

  /// Tensors that travelled inside messages.
  struct Copies {
    std::atomic<std::uint64_t> count{0}, bytes{0};
    void add(std::uint64_t size_bytes) {
      count.fetch_add(1, std::memory_order_relaxed);
      bytes.fetch_add(size_bytes, std::memory_order_relaxed);
    }
  };

  /// An answer that must be copied before its request is done. Tensors that have no memory are in the payload.
  struct Answer {
    std::shared_ptr<PendingRequest> request;
    Outcome outcome;
    wire::Payload payload;
    Tensors own_outputs;  ///< memory of the caller's, to which it is copied
  };

  PoolCore(PoolOptions options, UniqueFd wake_fd);
  void end();
  void send_new(const std::shared_ptr<PendingRequest>& request, const completion::Submission& submission);
  void wait_locked(const Waitable& target, std::uint64_t until_ns, const std::stop_token& stop) SHOAL_REQUIRES(mutex_);
  void wake_next_driver() SHOAL_REQUIRES(mutex_);
  /// Looks whether the daemon has sent anything since the last look, and pings it if not.
  class SilentLooks {
   public:
    /// True if it has been silent for control_timeout: for kLooks looks in a row.
    bool look(PoolCore& core) SHOAL_REQUIRES(core.mutex_);

   private:
    std::uint64_t heard_ = 0;
    int silent_ = -1;
  };
  std::uint64_t look_interval_ns() const;
  /// Waits while the daemon gives signs of life. False if it has been silent for control_timeout, or in a forked child.
  bool wait_while_alive(const Waitable& target);
  Result<std::string> answer_of(ControlCall& call);
  bool is_overdue(const PendingRequest& request) const SHOAL_REQUIRES(mutex_);
  void end_overdue() SHOAL_REQUIRES(mutex_);
  void look_for_silence() SHOAL_REQUIRES(mutex_);
  Status silence(std::string_view what) SHOAL_REQUIRES(mutex_);
  Status no_answer(const PendingRequest& request) const noexcept;
  bool has_arenas() const { return options_.arena_limit_bytes > 0; }
  Status take_inputs(PendingRequest& request, const completion::Submission& submission);
  Status place_inputs(std::span<const NamedTensor> inputs, PendingRequest& request);
  Status place_input(RequestInput& input, Arena& arena, const std::string& model, std::uint64_t& frame_bytes);
  Status copy_input(RequestInput& input, Arena& arena, const std::string& model, std::uint64_t& frame_bytes);
  void release_slots_of(PendingRequest& request) SHOAL_REQUIRES(mutex_);
  void release_inputs_of(PendingRequest& request, Owners& left);
  Status no_room_for(const RequestInput& input, std::string_view name, const PendingRequest& request) const
      SHOAL_REQUIRES(mutex_);
  std::shared_ptr<Arena> arena_for_inputs() SHOAL_EXCLUDES(inputs_mutex_);
  void use_input(std::shared_ptr<Arena> arena) SHOAL_REQUIRES(mutex_);
  bool take_smaller_arenas() SHOAL_REQUIRES(mutex_);
  void tend_arenas(std::uint64_t now_ns) SHOAL_REQUIRES(mutex_);
  void shrink_arenas(std::uint64_t now_ns) SHOAL_REQUIRES(mutex_);
  Left take_left() SHOAL_REQUIRES(mutex_);
  void switch_connections() SHOAL_REQUIRES(mutex_);
  void leave_old_connection() SHOAL_REQUIRES(mutex_);
  void drop_other_connections() SHOAL_REQUIRES(mutex_);

  void progress() SHOAL_REQUIRES(mutex_);
  void progress_after_sends() SHOAL_REQUIRES(mutex_);
  void advance_connection() SHOAL_REQUIRES(mutex_);
  void want_connection() SHOAL_REQUIRES(mutex_);
  void try_soon() SHOAL_REQUIRES(mutex_);
  Status begin_connection(std::uint64_t give_up_at_ns) SHOAL_REQUIRES(mutex_);
  void on_ready() SHOAL_REQUIRES(mutex_);
  void lose_connection(const Status& why) SHOAL_REQUIRES(mutex_);
  void fail_everything(const Status& why) SHOAL_REQUIRES(mutex_);
  void receive_all() SHOAL_REQUIRES(mutex_);
  void receive_from(const std::unique_ptr<Connection>& connection) SHOAL_REQUIRES(mutex_);
  std::shared_ptr<PendingRequest> find_sent(std::uint64_t seq) const SHOAL_REQUIRES(mutex_);
  void forget_sent(std::uint64_t seq) SHOAL_REQUIRES(mutex_);
  void dispatch(const wire::Parcel& message, bool is_current) SHOAL_REQUIRES(mutex_);
  void handle_reply(const wire::Parcel& message) SHOAL_REQUIRES(mutex_);
  void take_reply(const wire::Parcel& message, const wire::Reply& reply, const std::shared_ptr<PendingRequest>& request)
      SHOAL_REQUIRES(mutex_);
  void handle_release(const wire::Parcel& message) SHOAL_REQUIRES(mutex_);
  void handle_control_reply(const wire::Parcel& message, bool is_current) SHOAL_REQUIRES(mutex_);
  void answer_call(const std::shared_ptr<ControlCall>& call, Result<std::string> answer) SHOAL_REQUIRES(mutex_);
  void handle_description(const ModelKey& model, ModelEntry& entry, const Result<std::string>& answer) SHOAL_REQUIRES(mutex_);
  void take_description(std::string_view text) SHOAL_REQUIRES(mutex_);
  void end_wait(const ModelKey& model, ModelEntry& entry, const Status& status) SHOAL_REQUIRES(mutex_);
  void forget_unknown(const ModelKey& model) SHOAL_REQUIRES(mutex_);
  ModelEntry* find_entry(const ModelKey& model, void* known) SHOAL_REQUIRES(mutex_);
  ModelEntry* entry_at(void* known) const SHOAL_REQUIRES(mutex_);
  ModelEntry* entry_of(const PendingRequest& request) SHOAL_REQUIRES(mutex_) {
    return find_entry(request.model, request.known.get());
  }
  void park(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  void look_again(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  void expire_parked(std::uint64_t now_ns) SHOAL_REQUIRES(mutex_);
  void expire_sent(std::uint64_t now_ns) SHOAL_REQUIRES(mutex_);
  Result<Tensors> read_outputs(const wire::Parcel& message, const wire::Reply& reply, PendingRequest& request)
      SHOAL_REQUIRES(mutex_);

  Status begin(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  void start(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  Status use_session(SessionState& session) SHOAL_REQUIRES(mutex_);
  void drop_session(SessionState& session, Status why) SHOAL_REQUIRES(mutex_);
  void close_idle_sessions(std::uint64_t now_ns) SHOAL_REQUIRES(mutex_);
  Status complete_inputs(PendingRequest& request) SHOAL_REQUIRES(mutex_);
  Status add_state(const StatePair& pair, PendingRequest& request) SHOAL_REQUIRES(mutex_);
  std::uint64_t bytes_of_sessions() const SHOAL_REQUIRES(mutex_);

  /// Does what waits in the three queues. Releases the mutex while it copies; true if it did.
  bool copy_outside() SHOAL_REQUIRES(mutex_);
  void finish(Answer answer) SHOAL_REQUIRES(mutex_);
  Status copy_answer(Answer& answer, Arena* arena, std::vector<Tensor>& states) SHOAL_EXCLUDES(mutex_);
  Status keep_states(const PendingRequest& request, std::vector<Tensor> states) SHOAL_REQUIRES(mutex_);
  Status order_inputs(PendingRequest& request, const ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  bool waits_for_copies(const std::shared_ptr<PendingRequest>& request, const ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  void prepare(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  void move_session(SessionState& session) SHOAL_REQUIRES(mutex_);
  void move_later(const std::shared_ptr<SessionState>& session) SHOAL_REQUIRES(mutex_);

  void route(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  void send_request(const std::shared_ptr<PendingRequest>& request, ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  Status write_request(PendingRequest& request) SHOAL_REQUIRES(mutex_);
  static std::uint64_t output_bytes(const PendingRequest& request, const ModelEntry& entry, std::size_t i);
  std::uint64_t missing_output_bytes(const PendingRequest& request, const ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  void offer_outputs(PendingRequest& request, const ModelEntry& entry) SHOAL_REQUIRES(mutex_);
  OutputSlot offer_own(const PendingRequest& request, std::string_view name) SHOAL_REQUIRES(mutex_);
  void take_back_outputs(PendingRequest& request) SHOAL_REQUIRES(mutex_);
  void add_sent(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  Result<Tensor> loan_in(Arena& arena, DType dtype, const Shape& shape);
  void try_to_cancel(PendingRequest& request) noexcept SHOAL_REQUIRES(mutex_);
  void send_cancel(PendingRequest& request) SHOAL_REQUIRES(mutex_);
  bool waits_for_memory(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);
  void send_what_waited() SHOAL_REQUIRES(mutex_);
  std::shared_ptr<ControlCall> start_call(std::string json, const ModelKey* describes = nullptr) SHOAL_REQUIRES(mutex_);
  void send_call(const std::shared_ptr<ControlCall>& call) SHOAL_REQUIRES(mutex_);
  Result<std::shared_ptr<ControlCall>> ask_description(const ModelKey& model) SHOAL_REQUIRES(mutex_);
  void ask_description_for(const std::shared_ptr<PendingRequest>& request) SHOAL_REQUIRES(mutex_);

  bool is_ready() const SHOAL_REQUIRES(mutex_) { return connection_ && connection_->is_ready(); }
  void complete(PendingRequest& request, Outcome outcome) SHOAL_REQUIRES(mutex_);
  void tell(PendingRequest& request) noexcept SHOAL_REQUIRES(mutex_);
  void fail(PendingRequest& request, Status status) SHOAL_REQUIRES(mutex_);
  void finish_call(const std::shared_ptr<ControlCall>& call, Result<std::string> answer) SHOAL_REQUIRES(mutex_);
  void wake_waiters_of(const Waitable& target) SHOAL_REQUIRES(mutex_);
  void poll_descriptors(std::uint64_t until_ns) SHOAL_REQUIRES(mutex_);
  std::uint64_t next_timer_ns() const SHOAL_REQUIRES(mutex_);

  const PoolOptions options_;
  const ForkGuard fork_guard_;
  const UniqueFd wake_fd_;  ///< eventfd that ends the driver's poll
  Copies input_copies_, output_copies_;
  /// Of inputs of all requests that are not released. They take as much of this process's heap, in ZeroMQ's queue.
  std::atomic<std::uint64_t> frame_bytes_{0};
  std::atomic<std::uint64_t> most_frame_bytes_{wire::kMaxFrameBytes};  ///< what the daemon takes of one client

  Mutex inputs_mutex_;
  std::shared_ptr<Arena> for_inputs_ SHOAL_GUARDED_BY(inputs_mutex_);  ///< input_, for threads that do not have mutex_

  Mutex mutex_;                                             ///< locked by Lock
  std::shared_ptr<Arena> input_ SHOAL_GUARDED_BY(mutex_);   ///< of connection_; null before it, or without arenas
  std::shared_ptr<Arena> output_ SHOAL_GUARDED_BY(mutex_);  ///< of all connections to one daemon; each daemon has a new one
  std::uint64_t arena_limit_bytes_ SHOAL_GUARDED_BY(mutex_);
  ShrinkRule shrink_rule_ SHOAL_GUARDED_BY(mutex_);
  std::optional<std::uint64_t> keep_of_output_ SHOAL_GUARDED_BY(mutex_);  ///< to how much it shrinks, a part at a time
  std::uint64_t next_part_ns_ SHOAL_GUARDED_BY(mutex_) = 0;
  /// The input arena of old_, and the output arena of the last daemon (take_left()).
  std::shared_ptr<Arena> left_input_ SHOAL_GUARDED_BY(mutex_), left_output_ SHOAL_GUARDED_BY(mutex_);
  Owners left_owners_ SHOAL_GUARDED_BY(mutex_);                        ///< likewise
  std::vector<const std::byte*> own_in_use_ SHOAL_GUARDED_BY(mutex_);  ///< callers' outputs that a worker may write
  bool some_wait_for_memory_ SHOAL_GUARDED_BY(mutex_) = false;         ///< PendingRequest::waits_for_memory of any parked one
  int copying_ SHOAL_GUARDED_BY(mutex_) = 0;                           ///< threads that copy answers
  Condition copied_;                                                   ///< end() and give_up() wait for them
  SilentLooks looks_ SHOAL_GUARDED_BY(mutex_);                         ///< of those who wait for any of many requests
  std::uint64_t next_look_ns_ SHOAL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_attempt_ns_ SHOAL_GUARDED_BY(mutex_) = 0;  ///< to connect
  wire::MessageContext context_;
  std::unique_ptr<Connection> connection_ SHOAL_GUARDED_BY(mutex_);
  std::unique_ptr<Connection> next_ SHOAL_GUARDED_BY(mutex_), old_ SHOAL_GUARDED_BY(mutex_);
  std::shared_ptr<Arena> next_input_ SHOAL_GUARDED_BY(mutex_);
  std::uint64_t next_attempt_ns_ SHOAL_GUARDED_BY(mutex_) = 0;  ///< to connect; used while there is no connection
  std::uint64_t kept_out_ns_ SHOAL_GUARDED_BY(mutex_) = 0;  ///< since when the directory does not let this user in; 0 = it does
  std::uint64_t give_up_reconnecting_ns_ SHOAL_GUARDED_BY(mutex_) = 0;
  Status lost_because_ SHOAL_GUARDED_BY(mutex_);  ///< or why the last attempt failed
  /// When expire_parked() is due: at the first deadline of a parked request, but not before next_walk_ns_.
  std::uint64_t next_expiry_ns_ SHOAL_GUARDED_BY(mutex_) = kForever;
  std::uint64_t next_walk_ns_ SHOAL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_overdue_ns_ SHOAL_GUARDED_BY(mutex_) = kForever;  ///< likewise, of expire_sent()
  /// When the attach socket was last read. It is not read for every request.
  std::uint64_t attach_read_ns_ SHOAL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ SHOAL_GUARDED_BY(mutex_) = false;

  std::uint64_t last_seq_ SHOAL_GUARDED_BY(mutex_) = 0;
  PendingRequest::ByNumber requests_ SHOAL_GUARDED_BY(mutex_);      ///< sent by connection_, slots not released; by seq
  PendingRequest::ByNumber old_requests_ SHOAL_GUARDED_BY(mutex_);  ///< likewise, sent by old_
  std::map<std::uint64_t, std::shared_ptr<PendingRequest>> parked_
      SHOAL_GUARDED_BY(mutex_);  ///< wait for a daemon, their model's description or copies, none is done; by seq
  std::unordered_map<std::uint64_t, std::shared_ptr<ControlCall>> calls_ SHOAL_GUARDED_BY(mutex_);  ///< unanswered, by seq
  std::map<ModelKey, ModelEntry> models_ SHOAL_GUARDED_BY(mutex_);              ///< described, or being described
  std::uint64_t erasures_ SHOAL_GUARDED_BY(mutex_) = 1;                         ///< from models_
  std::list<std::shared_ptr<SessionState>> sessions_ SHOAL_GUARDED_BY(mutex_);  ///< open; the one used last is the last
  std::uint64_t idle_clock_ns_ SHOAL_GUARDED_BY(mutex_) = 0, looked_for_idle_ns_ SHOAL_GUARDED_BY(mutex_) = 0;
  std::uint64_t heard_ SHOAL_GUARDED_BY(mutex_) = 0;            ///< number of messages received from the daemon
  std::shared_ptr<ControlCall> ping_ SHOAL_GUARDED_BY(mutex_);  ///< the last one; at most one is unanswered
  wire::Parcel incoming_ SHOAL_GUARDED_BY(mutex_);
  wire::Reply reply_ SHOAL_GUARDED_BY(mutex_);  ///< these are used again, so that nothing is allocated in the long run
  wire::Request outgoing_ SHOAL_GUARDED_BY(mutex_);
  std::vector<std::byte> frame_ SHOAL_GUARDED_BY(mutex_);
  std::vector<std::span<const std::byte>> frames_ SHOAL_GUARDED_BY(mutex_);

  std::deque<Answer> answers_ SHOAL_GUARDED_BY(mutex_);                              ///< for finish()
  std::deque<std::shared_ptr<PendingRequest>> unprepared_ SHOAL_GUARDED_BY(mutex_);  ///< for prepare()
  std::deque<std::shared_ptr<SessionState>> to_move_ SHOAL_GUARDED_BY(mutex_);       ///< for move_session()

  int sent_since_progress_ SHOAL_GUARDED_BY(mutex_) = 0;             ///< requests
  std::uint64_t bytes_since_progress_ SHOAL_GUARDED_BY(mutex_) = 0;  ///< of their inputs
  bool is_driven_ SHOAL_GUARDED_BY(mutex_) = false;
  const Waitable* driver_target_ SHOAL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Follower*> followers_ SHOAL_GUARDED_BY(mutex_);
};

/// The caller's handle of a new request. In `handle` may be that of an earlier one, which is used again if nobody else has it.
std::shared_ptr<PendingRequest> begin_handle(const std::shared_ptr<PoolCore>& core, completion::HandleSlot& handle);

}  // namespace shoal::client
