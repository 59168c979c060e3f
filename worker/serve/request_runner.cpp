#include "worker/serve/request_runner.hpp"

#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cstdio>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "worker/serve/crash_handler.hpp"

namespace shoal::worker {

using wire::FlightKind;

// The list was sent before the request. Shorter than the watchdog's limit.
constexpr std::chrono::milliseconds kQuarantineLimit{100};

RequestRunner::RequestRunner(const LaneEnvironment& environment, std::uint16_t lane, wire::LaneLine& line, ReadyBell& bell,
                             std::function<void()> before_long, std::function<std::uint64_t()> held_bytes)
    : environment_(environment),
      served_(environment.served),
      lane_(lane),
      line_(line),
      bell_(bell),
      before_long_(std::move(before_long)),
      held_bytes_(std::move(held_bytes)),
      specs_(served_.inputs),
      joined_programs_(served_.model.joined_sizes().size()) {
  progress_.step_counter = &line_.step_counter;
  progress_.stop = this;
  progress_.waits_for_device = &line_.waits_for_device;
  progress_.on_fallback = [this](const Status& why) { note_fallback(why); };
  context_.progress = &progress_;
  context_.sink = this;
}

Frames RequestRunner::answer(Frames message, std::shared_ptr<const PendingProgram> program) {
  brought_ = std::move(program);
  waits_for_.reset();
  if (!begin(job_, message)) return {};
  if (job_.status.ok()) {
    // Before the inputs are touched: from here on the request counts as begun, and is blamed for a crash.
    name_in_line(line_, job_.header().request_id, job_.header().attempt, 1);
    job_.status = try_to_run(message, (job_.header().lane_flags & wire::kHashInputs) != 0);
    // A hash in the line: there was a copy, and it may be why memory lacks. A suspect may be innocent.
    if (line_.running_hash.load(std::memory_order_relaxed) != 0 && job_.status.code() == StatusCode::kFailedPrecondition) {
      if (job_.ran != Ran::kNo) record(FlightKind::kEnded, job_, static_cast<std::uint64_t>(job_.status.code()));
      line_.running_hash.store(0, std::memory_order_relaxed);
      if (begin(job_, message) && job_.status.ok()) job_.status = try_to_run(message, false);
    }
    mark_out_of_memory(job_, job_.status);
  }
  job_.forget_inputs();
  if (waits_for_) {
    clear_line(line_);
    record(FlightKind::kParked, job_);
    return job_.finish_notice();
  }
  record(FlightKind::kEnded, job_, static_cast<std::uint64_t>(job_.status.code()));
  if (!environment_.memory.leaves_room_to_receive(held_bytes_())) release_run_memory();
  const Frames reply = finish(job_);  // the line names the request until there is memory for its answer
  clear_line(line_);
  return reply;
}

// False if the message does not even name a request.
bool RequestRunner::begin(Job& job, Frames message) {
  try {
    if (!job.begin(message)) return false;
    running_ids_.assign(1, job.header().request_id);
    cancellations_ = environment_.cancelled.count();
    if (job.status.ok()) job.status = find_arenas(job);
  } catch (...) {
    job.status = explain_exception();
    job.ran = Ran::kMaybe;  // as answer() has it
  }
  return job.header().request_id != 0;
}

// Comes before the line names the request: until then the lane receives, as the watchdog understands it. The control thread,
// which maps the arenas, may be busy with those of others, and the request is not to blame for that.
Status RequestRunner::find_arenas(Job& job) {
  if (environment_.cancelled.contains(job.header().request_id)) return cancelled("cancelled before it began");
  Status found = job.find_arenas(served_, environment_.arenas, before_long_);
  mark_out_of_memory(job, found);
  return found;
}

// With kNo, the client would take this code for a model that has changed.
void RequestRunner::mark_out_of_memory(Job& job, const Status& status) {
  if (status.code() == StatusCode::kFailedPrecondition && job.ran == Ran::kNo) job.ran = Ran::kMaybe;
}

// The frames of the reply. If there is no memory for them, they become an error, and the outputs of `others` are given up, too.
Frames RequestRunner::finish(Job& job, std::span<Job> others) {
  line_.completed.fetch_add(1, std::memory_order_relaxed);
  try {
    return job.finish(served_.name);
  } catch (const std::bad_alloc&) {
    job.status = explain_exception();
    mark_out_of_memory(job, job.status);
    for (Job& other : others) {
      if (other.status.ok()) other.status = job.status;
    }
    return job.finish(served_.name);
  }
}

Status RequestRunner::try_to_run(Frames message, bool keeps_inputs) {
  try {
    const Status ran = run(message, keeps_inputs);
    if (waits_for_) job_.prepare_notice();
    return ran;
  } catch (...) {
    waits_for_.reset();
    return explain_exception();
  }
}

Status RequestRunner::run(Frames message, bool keeps_inputs) {
  SHOAL_RETURN_IF_ERROR(job_.locate_inputs(served_, message));
  SHOAL_RETURN_IF_ERROR(refuse_quarantined(job_, keeps_inputs));
  SHOAL_RETURN_IF_ERROR(choose_program());
  if (waits_for_) return {};
  SHOAL_RETURN_IF_ERROR(job_.locate_outputs(served_, program_->outputs()));
  SHOAL_RETURN_IF_ERROR(give_spare_memory());
  if (program_->time_varies()) before_long_();
  record(FlightKind::kBegun, job_, 1);
  job_.ran = Ran::kMaybe;
  const std::uint64_t start_ns = monotonic_now_ns();
  const Status status = program_->run(context_, job_.src(), job_.dst());
  job_.compute_ns = monotonic_now_ns() - start_ns;
  if (status.code() == StatusCode::kCancelled) record(FlightKind::kCancelled, job_);
  if (status.ok()) job_.ran = Ran::kYes;
  return status;
}

// A suspect's hash is in the status line before it runs: the supervisor reads it there after a crash. A suspect that leaves no
// memory for the copy runs without a hash: it may be innocent.
Status RequestRunner::refuse_quarantined(Job& job, bool keeps_inputs) {
  if (job.header().request_id == wire::kProbeRequest) return {};  // it finds out whether its input is bad here
  if (keeps_inputs || job.header().quarantine != 0) before_long_();
  if (job.header().quarantine != 0) environment_.quarantine.wait_for(job.header().quarantine, kQuarantineLimit);
  // Its client could show other inputs while they are hashed, and so have those of others refused.
  const bool are_kept = keeps_inputs && job.keep_inputs();
  if (!are_kept && environment_.quarantine.is_empty()) return {};
  const std::uint64_t hash = hash_inputs(job.src());
  if (are_kept) line_.running_hash.store(hash, std::memory_order_relaxed);
  if (!environment_.quarantine.contains(hash)) return {};
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return poison("inputs with the hash {} have crashed workers of this model and are refused for a while", text);
}

Status RequestRunner::choose_program() {
  bool is_as_before = program_ != nullptr;
  const auto src = job_.src();
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    specs_[i].dtype = src[i].dtype;
    specs_[i].shape = src[i].shape;
    is_as_before =
        is_as_before && program_->inputs()[i].shape == specs_[i].shape && program_->inputs()[i].dtype == specs_[i].dtype;
  }
  if (is_as_before) {
    if (!brought_) environment_.compiler.count_hit();
    return {};
  }
  before_long_();
  program_.reset();  // the next one may need its memory
  if (brought_) {
    SHOAL_ASSIGN_OR_RETURN(program_, brought_->outcome());
  } else {
    SHOAL_ASSIGN_OR_RETURN(program_, served_.model.find_program(specs_));
    if (!program_) {
      const wire::RequestHeader& header = job_.header();
      job_.forget_inputs();  // the compilation may need the memory of a copy
      waits_for_ = environment_.compiler.compile(
          specs_, {.request_id = header.request_id, .asker = {header.client_id, header.flow}, .line = &line_, .bell = &bell_});
      return {};
    }
    environment_.compiler.count_hit();
  }
  note_arena(*program_);
  return {};
}

void RequestRunner::note_arena(const Program& program) {
  const std::uint64_t arena_bytes =
      std::max<std::uint64_t>(line_.arena_bytes.load(std::memory_order_relaxed), program.arena_bytes());
  line_.arena_bytes.store(arena_bytes, std::memory_order_relaxed);
}

Status RequestRunner::give_spare_memory() {
  const auto dst = job_.dst();
  spare_outputs_.resize(std::max(spare_outputs_.size(), dst.size()));
  for (std::size_t i = 0; i < dst.size(); ++i) {
    if (dst[i].data || is_dynamic(program_->outputs()[i])) continue;
    SHOAL_ASSIGN_OR_RETURN(dst[i].data, spare_memory(i, dst[i].dtype, dst[i].shape));
  }
  return {};
}

Result<std::byte*> RequestRunner::spare_memory(std::size_t index, DType dtype, const Shape& shape) {
  Tensor& spare = spare_outputs_[index];
  if (spare.dtype() != dtype || spare.shape() != shape) {
    auto created = Tensor::create(dtype, shape);
    if (created.status().code() == StatusCode::kFailedPrecondition)
      throw std::bad_alloc();  // callers treat every failed allocation as std::bad_alloc
    SHOAL_ASSIGN_OR_RETURN(spare, std::move(created));
  }
  return spare.view().data;
}

// Of a request that runs alone: programs with such outputs are never joined.
Result<std::byte*> RequestRunner::place(std::size_t index, DType dtype, const Shape& shape) {
  SHOAL_RETURN_IF_ERROR(job_.place_output(served_, program_->outputs()[index], index, shape));
  if (std::byte* const slot = job_.dst()[index].data) return slot;
  return spare_memory(index, dtype, shape);
}

bool RequestRunner::should_stop() {
  const std::uint64_t count = environment_.cancelled.count();
  if (count == cancellations_) return false;
  cancellations_ = count;
  return std::ranges::all_of(running_ids_, [&](std::uint64_t id) { return environment_.cancelled.contains(id); });
}

Status RequestRunner::activate() try {
  return served_.model.activate(context_).with_context(format("model '{}'", served_.name));
} catch (const std::bad_alloc&) {
  return environment_.memory.exceeded("making its devices ready");
} catch (const std::exception& error) {
  return internal_error("model '{}': make its devices ready: {}", served_.name, error.what());
}

// A device may fail in every run: the log gets the first time and powers of two.
void RequestRunner::note_fallback(const Status& why) {
  const std::uint64_t count = line_.fallbacks.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!std::has_single_bit(count)) return;
  std::fprintf(stderr, "shoal-worker: model '%s' ran on the CPU instead, %llu times on lane %u: %s\n", served_.name.c_str(),
               static_cast<unsigned long long>(count), unsigned{lane_}, why.message().c_str());
}

Status RequestRunner::explain_exception() {
  progress_.step_name = nullptr;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    release_memory();
    // No request uses what is in use beside the messages: the lane would refuse one request after the other.
    if (environment_.memory.is_spent(held_bytes_())) abort_out_of_memory("where no answer can say it");
    return environment_.memory.exceeded("the request");
  } catch (const std::exception& error) {
    return internal_error("{}", error.what());
  }
}

void RequestRunner::release_memory() {
  program_.reset();
  joined_program_ = nullptr;
  for (JoinedProgram& known : joined_programs_) known = {};
  joined_orders_.clear();
  job_.forget_inputs();
  for (Job& job : jobs_) job.forget_inputs();
  release_run_memory();
  spare_outputs_.clear();
  joined_dst_bytes_.clear();
  ::malloc_trim(0);
}

// What no answer needs that is not sent yet. The supervisor may send the next message as soon as it has an answer.
void RequestRunner::release_run_memory() {
  context_.release_memory();
  joined_src_bytes_.clear();
}

void RequestRunner::leave_room_to_receive() {
  if (environment_.memory.leaves_room_to_receive()) return;
  release_run_memory();
  spare_outputs_.clear();
  joined_dst_bytes_.clear();
}

void name_in_line(wire::LaneLine& line, std::uint64_t request_id, std::uint64_t attempt, std::size_t count) {
  line.running_attempt.store(attempt, std::memory_order_relaxed);
  line.running_count.store(count, std::memory_order_relaxed);
  line.running_request.store(request_id, std::memory_order_release);
}

void clear_line(wire::LaneLine& line) {
  line.running_request.store(0, std::memory_order_relaxed);
  line.running_hash.store(0, std::memory_order_relaxed);
}

NamedMeanwhile::NamedMeanwhile(wire::LaneLine& line, std::uint64_t request_id, std::uint64_t attempt)
    : line_(line),
      request_(line.running_request),
      attempt_(line.running_attempt),
      count_(line.running_count),
      hash_(line.running_hash) {
  clear_line(line);
  name_in_line(line, request_id, attempt, 1);
}

NamedMeanwhile::~NamedMeanwhile() {
  clear_line(line_);
  if (request_ == 0) return;
  line_.running_hash.store(hash_, std::memory_order_relaxed);
  name_in_line(line_, request_, attempt_, count_);
}

void RequestRunner::record(FlightKind kind, const Job& job, std::uint64_t value) {
  environment_.flight.record(kind, lane_, job.header().request_id, value);
}

}  // namespace shoal::worker
