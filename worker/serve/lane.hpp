// Lane: one thread of a worker with one socket, one status line and one activation arena.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/wire/socket.hpp"
#include "shm/wire/status_page.hpp"
#include "worker/serve/request_runner.hpp"

namespace shoal::worker {

/// Receives, runs and answers requests until it is stopped (LaneEnvironment::stop_fd) and its socket is empty. Requests that were
/// sent as a batch run together. The replies of short runs that follow each other are sent together. A request whose program
/// must be compiled first is parked: the supervisor is told, and the lane serves others.
///   Threads  made, started and joined by the control thread
class Lane {
 public:
  Lane(const LaneEnvironment& environment, std::uint16_t number, wire::Dealer socket, wire::LaneLine& line);
  /// Returns when the lane's thread has made the model's devices ready.
  ///   Errors  kUnavailable (no more threads may be started); those of Model::activate(), with kInternal for
  ///            kUnavailable; the lane ends then
  Status start();
  void join() { thread_.join(); }
  /// Makes the lane answer the model's golden case, like any other request, and report to the supervisor.
  ///   number  of the probe, not 0; a later probe replaces an earlier one
  ///   Threads any
  void probe(std::uint64_t number);

 private:
  struct Parked {
    wire::Parcel message;
    std::shared_ptr<const PendingProgram> program;
  };
  void run(std::promise<Status> started);
  void serve(RequestRunner& runner);
  std::uint64_t held_bytes() const;
  void drop_tensors();
  bool is_cut_off();
  bool receive(wire::Parcel& message, bool& received);
  bool receive_batch(std::size_t& count);
  bool wait_for_member(wire::Parcel& message, bool& received, std::chrono::steady_clock::time_point until);
  Frames frames_of(const wire::Parcel& message, std::size_t place);
  bool answer_joined(RequestRunner& runner, std::span<const wire::Parcel> messages, const RequestRunner::Send& send);
  void send(Frames reply);
  bool keep(std::span<const std::byte> reply);
  bool flush();
  void send_alone(Frames reply);
  Status send_out_of_memory(wire::ReplyHeader header);
  void answer(RequestRunner& runner, wire::Parcel& message, std::shared_ptr<const PendingProgram> program = nullptr);
  bool answer_parked(RequestRunner& runner);
  Status run_probe(RequestRunner& runner);
  bool answer_probe(RequestRunner& runner);
  bool wait_for_work() const;

  const LaneEnvironment& environment_;
  const std::uint16_t number_;
  wire::Dealer socket_;
  wire::LaneLine& line_;
  ReadyBell bell_;           ///< a program is ready; its descriptor also says that a probe is wanted
  std::uint64_t heard_ = 0;  ///< the bell, as of the last look at parked_
  std::list<Parked> parked_, ready_;
  std::vector<wire::Parcel> batch_;  ///< current
  wire::Parcel resumed_;             ///< was parked, and is being answered
  wire::Parcel ahead_;               ///< a message that came instead of the rest of a batch
  bool has_ahead_ = false;
  bool had_peer_ = false;
  wire::Bundle kept_;                                            ///< replies of short runs, until flush()
  std::uint64_t kept_ns_ = 0;                                    ///< how long those runs took
  std::vector<std::vector<std::span<const std::byte>>> frames_;  ///< of the current messages
  std::vector<Frames> batch_frames_;
  std::atomic<std::uint64_t> probe_{0};  ///< wanted; 0 = none. Release in probe() pairs with acquire in answer_probe()
  std::uint64_t probe_begin_ns_ = 0;     ///< of the one being answered; 0 = none
  std::shared_ptr<const PendingProgram> probe_program_;
  std::thread thread_;
};

}  // namespace shoal::worker
