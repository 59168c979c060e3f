#include "worker/exec/planned_program.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <set>
#include <utility>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "worker/exec/memory_plan.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kCodeBytes = 48 << 10;  // generated code and descriptors of one step, as measured over ResNet-50
// A device that has refused is asked again: what it lacked it may have later. The pause doubles.
constexpr std::uint64_t kLeastPauseNs = 1'000'000'000, kMostPauseNs = 300'000'000'000;
constexpr std::size_t kStepBytes = 2 << 10;  // of a step without code: its name, operands and sizes

std::uint64_t next_program_id() {
  static std::atomic<std::uint64_t> counter{0};
  return ++counter;
}

bool is_aligned(const std::byte* address) { return reinterpret_cast<std::uintptr_t>(address) % kTensorAlignment == 0; }

BufferId root_of(const Plan& plan, BufferId id) {
  while (plan.buffer(id).parent != kNoBuffer) id = plan.buffer(id).parent;
  return id;
}

bool is_external(const Plan& plan, BufferId id) {
  const auto home = plan.buffer(root_of(plan, id)).home;
  return home == Buffer::Home::kInput || home == Buffer::Home::kOutput;
}

// The tensor itself, or a buffer of the full size, aligned to 64 bytes, which is made when it is first needed.
std::byte* stage(const TensorView& view, const TensorSpec& spec, AlignedBytes& staging) {
  if (is_aligned(view.data) && view.data != nullptr && view.shape == spec.shape) return view.data;
  if (staging.data == nullptr) staging = AlignedBytes::allocate(size_bytes_of(spec));
  return staging.data.get();
}

// The last dimension in which the two differ; 0 when they do not differ.
int last_difference(const Shape& a, const Shape& b) {
  int axis = a.rank() - 1;
  while (axis > 0 && a[axis] == b[axis]) --axis;
  return std::max(axis, 0);
}

// Copies the corner that both tensors have in common.
void copy_corner(const TensorView& src, const TensorView& dst) {
  if (src.element_count() == 0 || dst.element_count() == 0) return;
  if (src.shape == dst.shape) {
    std::memcpy(dst.data, src.data, src.size_bytes());
    return;
  }
  const int last = last_difference(src.shape, dst.shape);  // the dimensions after it are copied as one piece
  std::size_t inner_bytes = dtype_size_bytes(src.dtype);
  for (int axis = last + 1; axis < src.shape.rank(); ++axis) inner_bytes *= static_cast<std::size_t>(src.shape[axis]);
  const auto common = [&](int axis) { return std::min(src.shape[axis], dst.shape[axis]); };
  const std::size_t chunk_bytes = static_cast<std::size_t>(common(last)) * inner_bytes;
  std::array<std::int64_t, kMaxRank> index{};
  const auto offset = [&](const Shape& shape) {
    std::int64_t row = 0;
    for (int axis = 0; axis < last; ++axis) row = row * shape[axis] + index[static_cast<std::size_t>(axis)];
    return static_cast<std::size_t>(row * shape[last]) * inner_bytes;
  };
  while (true) {
    std::memcpy(dst.data + offset(dst.shape), src.data + offset(src.shape), chunk_bytes);
    int axis = last - 1;
    while (axis >= 0 && ++index[static_cast<std::size_t>(axis)] == common(axis)) index[static_cast<std::size_t>(axis--)] = 0;
    if (axis < 0) return;
  }
}

// Has an arena got another address since the steps were bound?
bool has_moved(const Context::State& state, const Binding& binding) {
  return binding.addresses.empty() || binding.arena != state.arena.data() ||
         !std::ranges::equal(binding.device_arenas, binding.queues, {}, {}, &DeviceQueue::arena);
}

// Copies src into the corner of dst and fills the rest with that byte.
void fill_up(const TensorView& src, const TensorView& dst, int byte) {
  // If only the first dimension differs, the data is one piece.
  const bool is_front = last_difference(src.shape, dst.shape) == 0;
  const std::size_t front_bytes = is_front ? src.size_bytes() : 0;
  std::memset(dst.data + front_bytes, byte, dst.size_bytes() - front_bytes);
  copy_corner(src, dst);
}

}  // namespace

std::size_t size_bytes_of(const TensorSpec& spec) { return TensorView{spec.dtype, spec.shape, nullptr}.size_bytes(); }

PlannedProgram::PlannedProgram(Plan plan, std::shared_ptr<const WeightStore> weights,
                               std::shared_ptr<const PlannedProgram> on_host)
    : id_(next_program_id()),
      plan_(std::move(plan)),
      weights_(std::move(weights)),
      on_host_(std::move(on_host)),
      alive_(std::make_shared<const int>(0)) {
  inputs_ = plan_.inputs;
  outputs_ = plan_.outputs;
  step_count_ = plan_.steps.size();
  time_varies_ = plan_.has_bodies;
  lay_out();
}

void PlannedProgram::lay_out() {
  const std::size_t buffer_count = plan_.buffers.size();
  std::vector<Interval> lives(buffer_count, Interval{.first = -1});
  for (std::size_t step = 0; step < plan_.steps.size(); ++step) {
    bool touches_external = false;
    for (const BufferId operand : plan_.steps[step]->operands()) {
      if (operand == kNoBuffer) continue;
      Interval& life = lives[static_cast<std::size_t>(root_of(plan_, operand))];
      if (life.first < 0) life.first = static_cast<int>(step);
      life.last = static_cast<int>(step);
      touches_external |= is_external(plan_, operand);
    }
    if (touches_external) external_steps_.push_back(step);
  }
  const auto keep_to_the_end = [&](BufferId id) {
    lives[static_cast<std::size_t>(root_of(plan_, id))].last = static_cast<int>(plan_.steps.size());
  };
  for (const auto& output : plan_.dynamic_outputs) {
    keep_to_the_end(output.buffer);
    keep_to_the_end(plan_.buffer(output.buffer).shape_slot);
  }
  std::vector<std::vector<Interval>> intervals(1 + plan_.devices.size());  // per space
  std::vector<std::vector<std::size_t>> owners(intervals.size());
  for (std::size_t id = 0; id < buffer_count; ++id) {
    const Buffer& buffer = plan_.buffers[id];
    if (is_external(plan_, static_cast<BufferId>(id))) external_buffers_.push_back(static_cast<BufferId>(id));
    if (buffer.parent != kNoBuffer || buffer.home != Buffer::Home::kArena || lives[id].first < 0) continue;
    lives[id].bytes = buffer.bytes;
    intervals[static_cast<std::size_t>(buffer.space)].push_back(lives[id]);
    owners[static_cast<std::size_t>(buffer.space)].push_back(id);
  }
  arena_offsets_.assign(buffer_count, 0);
  for (std::size_t space = 0; space < intervals.size(); ++space) {
    const MemoryPlan memory = plan_memory(intervals[space]);
    for (std::size_t i = 0; i < owners[space].size(); ++i) arena_offsets_[owners[space][i]] = memory.offsets[i];
    if (space == kHost) {
      arena_bytes_ = memory.total_bytes;
    } else {
      device_arenas_bytes_.push_back(memory.total_bytes);
    }
  }
}

std::size_t PlannedProgram::resident_bytes() const {
  std::size_t bytes = sizeof *this;
  for (const auto& step : plan_.steps) bytes += step->resident_bytes() + (step->has_code() ? kCodeBytes : kStepBytes);
  for (const Plan::Private& constant : plan_.privates) bytes += constant.memory.size_bytes;
  return bytes + (on_host_ ? on_host_->resident_bytes() : 0);
}

bool PlannedProgram::has_code() const {
  return std::ranges::any_of(plan_.steps, [](const auto& step) { return step->has_code(); }) ||
         (on_host_ && on_host_->has_code());
}

std::byte* PlannedProgram::address_of(const Buffer& buffer, const Binding& binding) const {
  const auto index = static_cast<std::size_t>(buffer.index);
  switch (buffer.home) {
    case Buffer::Home::kInput:
      return binding.inputs[index];
    case Buffer::Home::kOutput:
      return binding.outputs[index];
    case Buffer::Home::kPrivate:
      return plan_.privates[index].memory.data.get();
    // Steps only read it, and the mapping is read-only: a stray write is a SIGSEGV.
    case Buffer::Home::kWeights:
      return const_cast<std::byte*>(weights_->address(buffer.index));
    case Buffer::Home::kArena:
      break;
  }
  std::byte* const arena =
      buffer.space == kHost ? binding.arena : binding.device_arenas[static_cast<std::size_t>(buffer.space) - 1];
  return arena + arena_offsets_[static_cast<std::size_t>(&buffer - plan_.buffers.data())];
}

void PlannedProgram::rebind_step(Binding& binding, std::size_t step) const {
  const auto& operands = plan_.steps[step]->operands();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    binding.operands[i] = operands[i] == kNoBuffer ? nullptr : binding.addresses[static_cast<std::size_t>(operands[i])];
  }
  binding.steps[step]->set_addresses(std::span(binding.operands.data(), operands.size()));
}

void PlannedProgram::bind_steps(Binding& binding) const {
  binding.addresses.assign(plan_.buffers.size(), nullptr);
  for (std::size_t id = 0; id < plan_.buffers.size(); ++id) {
    std::size_t offset = 0;
    auto at = static_cast<BufferId>(id);
    for (; plan_.buffer(at).parent != kNoBuffer; at = plan_.buffer(at).parent) offset += plan_.buffer(at).offset_bytes;
    std::byte* root = address_of(plan_.buffer(at), binding);
    binding.addresses[id] = root == nullptr ? nullptr : root + offset;
  }
  for (std::size_t step = 0; step < plan_.steps.size(); ++step) rebind_step(binding, step);
}

Binding* PlannedProgram::binding_in(Context& context) const {
  Context::State& state = *context.state;
  const auto is_expired = [](const Binding& binding) { return binding.program_alive.expired(); };
  if (std::ranges::any_of(state.bindings, is_expired)) state.forget_expired();
  state.arena.reserve(arena_bytes_);
  const auto found =
      std::find_if(state.bindings.begin(), state.bindings.end(), [&](const Binding& b) { return b.program_id == id_; });
  const bool is_known = found != state.bindings.end();
  if (is_known) {
    state.bindings.splice(state.bindings.begin(), state.bindings, found);
    if (found->refusal.ok() || monotonic_now_ns() < found->asked_again_ns) return &*found;
  } else if (state.bindings.size() >= Context::State::kMaxBindings) {
    state.bindings.pop_back();
  }
  std::list<Binding> fresh(1);  // inserted only when it is complete, because an allocation may fail
  Binding& binding = fresh.front();
  binding.program_id = id_;
  binding.program_alive = alive_;
  binding.arena_bytes = arena_bytes_;
  binding.inputs.resize(inputs_.size());
  binding.outputs.resize(outputs_.size());
  binding.input_staging.resize(inputs_.size());
  binding.output_staging.resize(outputs_.size());
  if (!plan_.devices.empty()) {
    const WaitsForDevice waits(context.progress);
    binding.refusal = open_queues(state, binding);
  }
  if (binding.refusal.ok()) binding.refusal = make_steps(binding);
  if (!binding.refusal.ok()) {
    binding.pause_ns = std::clamp(is_known ? 2 * found->pause_ns : 0, kLeastPauseNs, kMostPauseNs);
    binding.asked_again_ns = monotonic_now_ns() + binding.pause_ns;
  }
  if (is_known) state.bindings.erase(found);
  state.bindings.splice(state.bindings.begin(), fresh);
  return &binding;
}

Status PlannedProgram::open_queues(Context::State& state, Binding& binding) const {
  binding.queues.clear();
  for (std::size_t i = 0; i < plan_.devices.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(DeviceQueue* const queue, state.devices.open(plan_.devices[i], device_arenas_bytes_[i]));
    binding.queues.push_back(queue);
  }
  return {};
}

Status PlannedProgram::make_steps(Binding& binding) const {
  std::size_t most_operands = 0;
  for (const auto& step : plan_.steps) {
    most_operands = std::max(most_operands, step->operands().size());
    if (step->space() == kHost) {
      binding.steps.push_back(step->bind());
      continue;
    }
    Queue& queue = *binding.queues[static_cast<std::size_t>(step->space()) - 1]->queue;
    auto active = static_cast<const DeviceStep&>(*step).activate(queue, *weights_);
    if (!active.ok()) {
      binding.steps.clear();
      return active.status().with_context(format("activate {}", step->name()));
    }
    binding.steps.push_back(*std::move(active));
  }
  binding.operands.resize(most_operands);
  return {};
}

void PlannedProgram::bind_tensors(Binding& binding, std::span<const TensorView> src, std::span<const TensorView> dst) const {
  bool changed = false;
  const auto bind = [&](std::byte*& bound, const TensorView& view, const TensorSpec& spec, AlignedBytes& staging) {
    if (is_dynamic(spec)) return;
    std::byte* address = stage(view, spec, staging);
    changed |= address != bound;
    bound = address;
  };
  for (std::size_t i = 0; i < src.size(); ++i) bind(binding.inputs[i], src[i], inputs_[i], binding.input_staging[i]);
  for (std::size_t i = 0; i < dst.size(); ++i) bind(binding.outputs[i], dst[i], outputs_[i], binding.output_staging[i]);
  if (changed) rebind_external(binding);
}

void PlannedProgram::rebind_external(Binding& binding) const {
  for (const BufferId id : external_buffers_) {
    std::size_t offset = 0;
    BufferId at = id;
    for (; plan_.buffer(at).parent != kNoBuffer; at = plan_.buffer(at).parent) offset += plan_.buffer(at).offset_bytes;
    binding.addresses[static_cast<std::size_t>(id)] = address_of(plan_.buffer(at), binding) + offset;
  }
  for (const std::size_t step : external_steps_) rebind_step(binding, step);
}

PlannedProgram::Outcome PlannedProgram::run_steps(Binding& binding, Progress* progress, std::span<std::uint64_t> times,
                                                  std::uint64_t (*clock)()) const {
  const bool is_timed = times.size() == plan_.steps.size();
  const bool has_devices = !binding.queues.empty();
  QueuesAtRest queues(binding.queues, progress);
  Outcome outcome;
  for (std::size_t step = 0; step < plan_.steps.size() && outcome.status.ok(); ++step) {
    if (progress != nullptr && !progress->enter_step(plan_.steps[step]->name().c_str())) {
      outcome.status = cancelled("told to end after {} of {} steps", step, plan_.steps.size());
      break;
    }
    const std::uint64_t start_ns = is_timed ? clock() : 0;
    const int awaited = has_devices ? binding.steps[step]->start() : -1;
    if (awaited >= 0 && !wait_for_device(awaited, progress)) {
      outcome.status = cancelled("told to end in step {} of {}, {}", step, plan_.steps.size(), plan_.steps[step]->name());
      break;
    }
    binding.steps[step]->progress = progress;
    outcome.status = binding.steps[step]->run();
    outcome.has_device_failed = !outcome.status.ok() && plan_.steps[step]->space() != kHost;
    if (is_timed) times[step] += clock() - start_ns;
  }
  if (outcome.status.ok()) queues.are_at_rest();
  return outcome;
}

Status PlannedProgram::place_dynamic_outputs(Context& context, const Binding& binding, std::span<TensorView> dst) const {
  for (const auto& [index, id] : plan_.dynamic_outputs) {
    TensorView& view = dst[index];
    std::memcpy(&view.shape, binding.addresses[static_cast<std::size_t>(plan_.buffer(id).shape_slot)], sizeof(Shape));
    SHOAL_ASSIGN_OR_RETURN(view.data, context.sink->place(index, view.dtype, view.shape));
    if (view.size_bytes() > 0) std::memcpy(view.data, binding.addresses[static_cast<std::size_t>(id)], view.size_bytes());
  }
  return {};
}

std::unique_ptr<Binding> PlannedProgram::make_inner_binding() const {
  SHOAL_CHECK(plan_.devices.empty() && plan_.dynamic_outputs.empty());
  auto binding = std::make_unique<Binding>();
  binding->inputs.resize(inputs_.size());
  binding->outputs.resize(outputs_.size());
  const Status made = make_steps(*binding);
  SHOAL_CHECK(made.ok());  // only devices refuse
  return binding;
}

void PlannedProgram::move_inner(Binding& binding, std::byte* arena) const {
  binding.arena = arena;
  bind_steps(binding);
}

Status PlannedProgram::run_inner(Binding& binding, Progress* progress, std::span<const TensorView> src,
                                 std::span<const TensorView> dst) const {
  bool changed = false;
  const auto set = [&](std::vector<std::byte*>& bound, std::span<const TensorView> views) {
    for (std::size_t i = 0; i < views.size(); ++i) changed |= std::exchange(bound[i], views[i].data) != views[i].data;
  };
  set(binding.inputs, src);
  set(binding.outputs, dst);
  if (changed) {
    try {
      rebind_external(binding);
    } catch (...) {
      std::ranges::fill(binding.inputs, nullptr);  // some steps have the old addresses: the next run binds them again
      std::ranges::fill(binding.outputs, nullptr);
      throw;
    }
  }
  return run_steps(binding, progress, {}, nullptr).status;
}

std::vector<StepInfo> PlannedProgram::steps() const {
  std::vector<int> uses(plan_.buffers.size());
  const auto unique_operands = [](const Step& step) {
    return std::set<BufferId>(step.operands().begin(), step.operands().end());
  };
  for (const auto& step : plan_.steps) {
    for (const BufferId id : unique_operands(*step)) {
      if (id != kNoBuffer) ++uses[static_cast<std::size_t>(root_of(plan_, id))];
    }
  }
  std::vector<StepInfo> infos;
  for (const auto& step : plan_.steps) {
    StepInfo info{.name = step->name(),
                  .implementation = step->implementation(),
                  .flops = step->flops(),
                  .on_device = step->space() != kHost,
                  .bodies = step->body_steps()};
    for (const BufferId id : unique_operands(*step)) {
      if (id == kNoBuffer) continue;
      const BufferId root = root_of(plan_, id);
      // Arena memory that only one step uses is its scratchpad. An ideal implementation needs none.
      const bool is_scratch = plan_.buffer(root).home == Buffer::Home::kArena && uses[static_cast<std::size_t>(root)] == 1;
      if (!is_scratch) info.bytes += static_cast<double>(plan_.buffer(id).bytes);
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

Status PlannedProgram::run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const {
  SHOAL_RETURN_IF_ERROR(check("input", inputs_, src));
  SHOAL_RETURN_IF_ERROR(check("output", outputs_, dst));
  return run_within(context, src, dst);
}

Status PlannedProgram::run_within(Context& context, std::span<const TensorView> src, std::span<TensorView> dst,
                                  std::span<const std::size_t> places) const {
  Outcome outcome = run_bound(context, src, dst, places);
  if (!outcome.has_device_failed || !on_host_) return std::move(outcome.status);
  note_fallback(context, outcome.status);
  return on_host_->run_within(context, src, dst, places);
}

Status PlannedProgram::activate(Context& context) const {
  if (plan_.devices.empty()) return {};
  const Status refusal = binding_in(context)->refusal;
  if (refusal.ok() || !on_host_) return refusal;
  note_fallback(context, refusal);
  return {};
}

void PlannedProgram::note_fallback(Context& context, const Status& why) {
  if (context.progress != nullptr && context.progress->on_fallback) context.progress->on_fallback(why);
}

PlannedProgram::Outcome PlannedProgram::run_bound(Context& context, std::span<const TensorView> src, std::span<TensorView> dst,
                                                  std::span<const std::size_t> places) const {
  if (!plan_.dynamic_outputs.empty() && context.sink == nullptr) {
    return {failed_precondition("the size of output '{}' depends on data: a run needs a place for it (Context::sink)",
                                outputs_[plan_.dynamic_outputs.front().index].name),
            false};
  }
  Binding* const binding = binding_in(context);
  if (!binding->refusal.ok()) return {binding->refusal, true};
  try {
    if (has_moved(*context.state, *binding)) {
      binding->arena = context.state->arena.data();
      binding->device_arenas.clear();
      for (const DeviceQueue* const device : binding->queues) binding->device_arenas.push_back(device->arena);
      bind_steps(*binding);
    }
    bind_tensors(*binding, src, dst);
  } catch (...) {
    context.state->bindings.pop_front();  // some of its steps have new addresses, others old ones
    throw;
  }
  for (std::size_t i = 0; i < src.size(); ++i) {
    if (binding->inputs[i] == src[i].data) continue;
    const bool holds_places = std::ranges::find(places, i) != places.end();
    fill_up(src[i], {src[i].dtype, inputs_[i].shape, binding->inputs[i]}, holds_places ? 0xFF : 0);
  }
  Outcome outcome = run_steps(*binding, context.progress, context.step_times, context.state->step_clock);
  if (context.progress != nullptr) context.progress->step_name.store(nullptr, std::memory_order_relaxed);
  if (outcome.status.ok()) outcome.status = place_dynamic_outputs(context, *binding, dst);
  for (std::size_t i = 0; i < dst.size() && outcome.status.ok(); ++i) {
    if (!is_dynamic(outputs_[i]) && binding->outputs[i] != dst[i].data)
      copy_corner({dst[i].dtype, outputs_[i].shape, binding->outputs[i]}, dst[i]);
  }
  return outcome;
}

}  // namespace shoal::worker
