#include "worker/exec/link.hpp"

#include <iterator>
#include <utility>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/transfer_step.hpp"

namespace shoal::worker {
namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

class Linker {
 public:
  Linker(const Graph& graph, std::vector<std::shared_ptr<const Backend>> devices)
      : graph_(graph),
        plan_(start_plan(graph)),
        places_(devices.size() + 1, std::vector<BufferId>(graph.values.size(), kNoBuffer)),
        in_flight_(devices.size() + 1),
        given_(devices.size() + 1),
        crosses_(graph.values.size()) {
    plan_.devices = std::move(devices);
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      const Value& value = graph.value(graph.inputs[i]);
      place(graph.inputs[i], kHost) = plan_.add_buffer(size_bytes_of(value), Buffer::Home::kInput, static_cast<int>(i));
    }
  }

  Result<Plan> link(std::vector<PreparedPart> parts, WeightStore& weights) {
    find_crossing_values(parts);
    for (PreparedPart& part : parts) append(part);
    for (std::size_t space = 1; space < in_flight_.size(); ++space) wait_for(static_cast<Space>(space));
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i].value;
      if (graph_.value(id).constant && place(id, kHost) == kNoBuffer) {
        SHOAL_ASSIGN_OR_RETURN(place(id, kHost), add_plain_constant(graph_, id, weights, plan_));
      }
      deliver_output(plan_, place(id, kHost), static_cast<int>(i));
    }
    return std::move(plan_);
  }

 private:
  BufferId& place(ValueId id, Space space) { return places_[at(space)][at(id)]; }

  // Those that the host needs of a device: for an output of the graph, or for a part in another space.
  void find_crossing_values(const std::vector<PreparedPart>& parts) {
    std::vector<Space> made_in(graph_.values.size(), kHost);
    for (const PreparedPart& part : parts) {
      for (const ValueId id : part.outputs) made_in[at(id)] = part.space;
    }
    for (const PreparedPart& part : parts) {
      for (const ValueId id : part.inputs) crosses_[at(id)] = crosses_[at(id)] || made_in[at(id)] != part.space;
    }
    for (const GraphOutput& output : graph_.outputs) crosses_[at(output.value)] = true;
  }

  void append(PreparedPart& part) {
    const std::vector<BufferId> new_ids = take_buffers(part);
    std::vector<std::size_t> new_steps;
    for (auto& step : part.plan.steps) {
      step->renumber(new_ids);
      if (part.space == kHost) wait_for_operands(*step);
      new_steps.push_back(plan_.steps.size());
      if (part.space != kHost) given_[at(part.space)] = step->name();
      add_step(std::move(step), part.space);
    }
    for (Plan::Tunable& tunable : part.plan.tunables) {
      tunable.step = new_steps[tunable.step];
      plan_.tunables.push_back(std::move(tunable));
    }
    std::ranges::move(part.plan.privates, std::back_inserter(plan_.privates));
    if (part.space != kHost) copy_out(part);
  }

  // Returns the number here of each of the part's buffers.
  std::vector<BufferId> take_buffers(const PreparedPart& part) {
    std::vector<BufferId> new_ids;
    for (const Buffer& buffer : part.plan.buffers) {
      const bool is_root = buffer.parent == kNoBuffer;
      if (is_root && buffer.home == Buffer::Home::kInput) {
        const BufferId id = bring(part.inputs[at(buffer.index)], part.space);
        plan_.buffer(id).holds_bounds |= buffer.holds_bounds;
        new_ids.push_back(id);
        continue;
      }
      const bool is_output = is_root && buffer.home == Buffer::Home::kOutput;
      const BufferId id = is_output ? plan_.add_buffer(buffer.bytes) : static_cast<BufferId>(plan_.buffers.size());
      if (!is_output) plan_.buffers.push_back(buffer);
      if (is_output) place(part.outputs[at(buffer.index)], part.space) = id;
      if (buffer.home == Buffer::Home::kPrivate) plan_.buffer(id).index += static_cast<int>(plan_.privates.size());
      plan_.buffer(id).space = part.space;
      new_ids.push_back(id);
    }
    for (std::size_t i = 0; i < new_ids.size(); ++i) {
      const Buffer& buffer = part.plan.buffers[i];
      if (buffer.parent != kNoBuffer) plan_.buffer(new_ids[i]).parent = new_ids[at(buffer.parent)];
      if (buffer.shape_slot != kNoBuffer) plan_.buffer(new_ids[i]).shape_slot = new_ids[at(buffer.shape_slot)];
    }
    return new_ids;
  }

  // The value's buffer in that space, where a copy brings it if it is not there.
  BufferId bring(ValueId id, Space space) {
    BufferId& there = place(id, space);
    if (there != kNoBuffer) return there;
    const BufferId here = place(id, kHost);
    SHOAL_CHECK(space != kHost && here != kNoBuffer);  // what the host needs was copied when it was made
    wait_for_buffer(here);
    const std::size_t bytes = plan_.buffer(here).bytes;
    there = plan_.add_buffer(bytes);
    plan_.buffer(there).space = space;
    add_step(make_copy_in_step(graph_.value(id).name, here, there, bytes), space);
    in_flight_[at(space)].push_back(here);
    return there;
  }

  void copy_out(const PreparedPart& part) {
    for (const ValueId id : part.outputs) {
      if (!crosses_[at(id)]) continue;
      const BufferId there = place(id, part.space);
      const std::size_t bytes = plan_.buffer(there).bytes;
      const BufferId here = place(id, kHost) = plan_.add_buffer(bytes);
      add_step(make_copy_out_step(graph_.value(id).name, there, here, bytes), part.space);
      in_flight_[at(part.space)].push_back(here);
      arrives_from_.resize(plan_.buffers.size(), kHost);
      arrives_from_[at(here)] = part.space;
    }
  }

  void wait_for_operands(const Step& step) {
    for (BufferId id : step.operands()) {
      while (id != kNoBuffer && plan_.buffer(id).parent != kNoBuffer) id = plan_.buffer(id).parent;
      if (id != kNoBuffer) wait_for_buffer(id);
    }
  }

  void wait_for_buffer(BufferId id) {
    if (at(id) < arrives_from_.size()) wait_for(arrives_from_[at(id)]);
  }

  void wait_for(Space space) {
    if (space == kHost || in_flight_[at(space)].empty()) return;
    add_step(make_wait_step(given_[at(space)], std::exchange(in_flight_[at(space)], {})), space);
    for (Space& from : arrives_from_) from = from == space ? kHost : from;
  }

  void add_step(std::unique_ptr<Step> step, Space space) {
    step->set_space(space);
    plan_.steps.push_back(std::move(step));
  }

  const Graph& graph_;
  Plan plan_;
  std::vector<std::vector<BufferId>> places_;     ///< per space and value
  std::vector<std::vector<BufferId>> in_flight_;  ///< per space: buffers of the host that its queue reads or writes
  std::vector<std::string> given_;                ///< per space: the last step that its queue was given
  std::vector<bool> crosses_;                     ///< per value
  std::vector<Space> arrives_from_;               ///< per buffer: the device that writes it while the host goes on
};

}  // namespace

Result<Plan> link_parts(const Graph& graph, std::vector<PreparedPart> parts, std::vector<std::shared_ptr<const Backend>> devices,
                        WeightStore& weights) {
  return Linker(graph, std::move(devices)).link(std::move(parts), weights);
}

}  // namespace shoal::worker
