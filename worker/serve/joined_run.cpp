// RequestRunner::answer_joined(): several requests in one run.
#include <algorithm>
#include <cstring>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "worker/serve/request_runner.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kMostJoinedOrders = 16;

std::int64_t rows_of(const Job& job) { return job.src()[0].shape[0]; }

// Does `job` have the same number of rows in all inputs, and otherwise the shapes and dtypes of `first`?
bool can_join(const Job& first, const Job& job) {
  for (std::size_t i = 0; i < job.src().size(); ++i) {
    const TensorView &a = first.src()[i], &b = job.src()[i];
    if (b.shape.rank() == 0 || b.dtype != a.dtype || b.shape.rank() != a.shape.rank() || b.shape[0] < 1 ||
        b.shape[0] != rows_of(job))
      return false;
    if (!std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1)) return false;
  }
  return !job.src().empty();
}

// Does `program` take these dtypes and shapes?
bool takes(const Program& program, std::span<const TensorSpec> inputs) {
  return std::ranges::equal(program.inputs(), inputs, [](const TensorSpec& taken, const TensorSpec& given) {
    return taken.dtype == given.dtype && taken.shape == given.shape;
  });
}

// Makes `memory` at least that large.
std::byte* room(AlignedBytes& memory, std::size_t bytes) {
  if (memory.size_bytes < bytes) {
    memory = {};
    memory = AlignedBytes::allocate(bytes);
  }
  return memory.data.get();
}

}  // namespace

bool RequestRunner::answer_joined(std::span<const Frames> messages, const Send& send) {
  if (joined_programs_.empty()) return false;
  bool is_answered = false;
  try {
    if (jobs_.size() < messages.size()) jobs_.resize(messages.size());
    is_answered = run_joined(messages);
  } catch (...) {
    (void)explain_exception();
  }
  clear_line(line_);
  const std::span<Job> jobs(jobs_.data(), std::min(jobs_.size(), messages.size()));
  if (!is_answered) {
    for (Job& job : jobs) job.let_go();
    return false;
  }
  if (!environment_.memory.leaves_room_to_receive(held_bytes_())) release_run_memory();  // as answer() does
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    record(wire::FlightKind::kEnded, jobs[i], static_cast<std::uint64_t>(jobs[i].status.code()));
    send(finish(jobs[i], jobs.subspan(i + 1)));
  }
  return true;
}

// True if every job has its answer.
bool RequestRunner::run_joined(std::span<const Frames> messages) {
  joined_.clear();
  running_ids_.clear();
  cancellations_ = environment_.cancelled.count();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!jobs_[i].begin(messages[i]) || !jobs_[i].status.ok()) return false;
  }
  for (Job& job : std::span(jobs_.data(), messages.size())) job.status = find_arenas(job);
  // Before any input is touched: from here on all of them count as begun.
  name_in_line(line_, jobs_[0].header().request_id, jobs_[0].header().attempt, messages.size());
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Job& job = jobs_[i];
    if (job.status.ok()) job.status = job.locate_inputs(served_, messages[i]);
    if (job.status.ok()) job.status = refuse_quarantined(job, false);  // suspects run alone
    if (!job.status.ok()) continue;
    if (!can_join(joined_.empty() ? job : *joined_.front(), job)) return false;
    joined_.push_back(&job);
    running_ids_.push_back(job.header().request_id);
    rows += rows_of(job);
  }
  if (joined_.size() < 2 || !find_joined_program(rows)) return false;
  locate_joined_outputs();
  gather_inputs();
  for (const Job* job : joined_) record(wire::FlightKind::kBegun, *job, joined_.size());
  const std::uint64_t start_ns = monotonic_now_ns();
  const Status status = joined_program_->run(context_, joined_src_, joined_dst_);
  const std::uint64_t compute_ns = monotonic_now_ns() - start_ns;
  if (!status.ok() && status.code() != StatusCode::kCancelled) return false;
  std::int64_t first_row = 0;
  for (Job* job : joined_) {
    if (status.ok() && job->status.ok()) scatter_outputs(*job, first_row);
    first_row += rows_of(*job);
    environment_.compiler.count_hit();
    if (!job->status.ok()) continue;  // no place for its outputs: alone it would not have run
    if (!status.ok()) record(wire::FlightKind::kCancelled, *job);
    job->status = status;
    job->ran = status.ok() ? Ran::kYes : Ran::kMaybe;
    job->compute_ns = compute_ns;
    job->batch = static_cast<std::uint16_t>(joined_.size());
  }
  return true;
}

// False while there is no program for so many rows. It is ordered, and the requests run alone until it is compiled.
bool RequestRunner::find_joined_program(std::int64_t rows) {
  const auto& sizes = served_.model.joined_sizes();
  const auto size = std::ranges::lower_bound(sizes, rows);
  if (size == sizes.end()) return false;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    specs_[i].dtype = joined_.front()->src()[i].dtype;
    specs_[i].shape = joined_.front()->src()[i].shape;
    specs_[i].shape[0] = *size;
  }
  JoinedProgram& known = joined_programs_[static_cast<std::size_t>(size - sizes.begin())];
  if (known.inputs != specs_) known = {.inputs = specs_, .program = nullptr};
  if (!known.program) known.program = find_or_order_program();
  joined_program_ = known.program.get();
  if (!joined_program_ || !takes(*joined_program_, specs_)) return false;  // rows are copied into buffers of its sizes
  note_arena(*joined_program_);
  return true;
}

// The program for specs_; null while there is none. It is ordered once, also when batches of several shapes alternate.
std::shared_ptr<const Program> RequestRunner::find_or_order_program() {
  const auto known = std::ranges::find(joined_orders_, specs_, &JoinedOrder::inputs);
  if (known != joined_orders_.end()) {
    const auto order = known->pending;
    if (!order->is_ready()) return nullptr;
    const auto& outcome = order->outcome();
    if (!outcome.ok() && outcome.status().code() != StatusCode::kFailedPrecondition) return nullptr;
    joined_orders_.erase(known);
    if (outcome.ok()) return *outcome;  // else memory lacked: there may be some now
  }
  if (auto found = served_.model.find_program(specs_); found.ok() && *found) return *std::move(found);
  if (joined_orders_.size() == kMostJoinedOrders) joined_orders_.erase(joined_orders_.begin());
  joined_orders_.push_back({specs_, environment_.compiler.compile(specs_, {.line = &line_, .bell = &bell_})});
  return nullptr;
}

// The rows of all members, then zeros up to the program's size.
void RequestRunner::gather_inputs() {
  const auto& inputs = joined_program_->inputs();
  joined_src_bytes_.resize(inputs.size());
  joined_src_.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TensorView& all = joined_src_.emplace_back(TensorView{inputs[i].dtype, inputs[i].shape, nullptr});
    all.data = room(joined_src_bytes_[i], all.size_bytes());
    std::byte* next = all.data;
    for (const Job* job : joined_) {
      const std::span<const std::byte> rows = job->src()[i].bytes();
      if (!rows.empty()) std::memcpy(next, rows.data(), rows.size());
      next += rows.size();
    }
    std::memset(next, 0, static_cast<std::size_t>(all.data + all.size_bytes() - next));
  }
}

// Finds each member's part of the outputs: an output has the same number of rows for each row of the inputs.
void RequestRunner::locate_joined_outputs() {
  const auto& outputs = joined_program_->outputs();
  const std::int64_t size = joined_program_->inputs()[0].shape[0];
  joined_dst_bytes_.resize(outputs.size());
  joined_dst_.clear();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    TensorView& all = joined_dst_.emplace_back(TensorView{outputs[i].dtype, outputs[i].shape, nullptr});
    all.data = room(joined_dst_bytes_[i], all.size_bytes());
  }
  member_outputs_ = outputs;
  for (Job* job : joined_) {
    for (std::size_t i = 0; i < outputs.size(); ++i) member_outputs_[i].shape[0] = outputs[i].shape[0] / size * rows_of(*job);
    job->status = job->locate_outputs(served_, member_outputs_);
  }
}

void RequestRunner::scatter_outputs(Job& job, std::int64_t first_row) {
  const std::int64_t size = joined_program_->inputs()[0].shape[0];
  const auto dst = job.dst();
  for (std::size_t i = 0; i < dst.size(); ++i) {
    std::byte* const rows =
        joined_dst_[i].data + joined_dst_[i].size_bytes() / static_cast<std::size_t>(size) * static_cast<std::size_t>(first_row);
    if (!dst[i].data) {
      dst[i].data = rows;  // travels as a frame
    } else if (dst[i].size_bytes() > 0) {
      std::memcpy(dst[i].data, rows, dst[i].size_bytes());
    }
  }
}

}  // namespace shoal::worker
