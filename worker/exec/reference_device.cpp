// The device "cpu-reference". Tests compare the other devices with it.
#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/exec/body_step.hpp"
#include "worker/exec/device.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/oracle_step.hpp"

namespace shoal::worker {
namespace {

class ReferenceDevice : public Device {
 public:
  std::string identity() const override { return "cpu-reference"; }
  void enter_thread() const override {}

  Result<Plan> compile(const Graph& graph, WeightStore& weights, const Choices&) const override {
    AddedWeights added(weights);
    Plan plan = start_plan(graph);
    std::vector<BufferId> placed(graph.values.size(), kNoBuffer);
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      placed[static_cast<std::size_t>(graph.inputs[i])] =
          plan.add_buffer(size_bytes_of(graph.value(graph.inputs[i])), Buffer::Home::kInput, static_cast<int>(i));
    }
    const auto read = find_read_values(graph);
    const auto place = [&](ValueId id) -> Result<BufferId> {
      BufferId& buffer = placed[static_cast<std::size_t>(id)];
      if (buffer != kNoBuffer) return buffer;
      if (graph.value(id).constant) {
        SHOAL_ASSIGN_OR_RETURN(buffer, add_plain_constant(graph, id, weights, plan));
      } else {
        buffer = plan.add_buffer(size_bytes_of(graph.value(id)));
      }
      return buffer;
    };
    for (const Node& node : graph.nodes) {
      std::vector<PlacedTensor> src, dst;
      for (const ValueId id : node.inputs) {
        SHOAL_ASSIGN_OR_RETURN(const BufferId buffer, place(id));
        src.push_back({graph.value(id).dtype, graph.value(id).shape, buffer});
      }
      for (const ValueId id : node.outputs) {
        BufferId buffer = kNoBuffer;
        if (read[static_cast<std::size_t>(id)]) {
          SHOAL_ASSIGN_OR_RETURN(buffer, place(id));
        }
        dst.push_back({graph.value(id).dtype, graph.value(id).shape, buffer});
      }
      if (!node.bodies.empty()) {
        const auto compile_body = [&](const Graph& body) { return compile(body, weights, {}); };
        SHOAL_RETURN_IF_ERROR(add_body_step(plan, node, src, dst, weights, compile_body));
      } else {
        add_oracle_step(plan, node, src, dst);
      }
    }
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
      SHOAL_ASSIGN_OR_RETURN(const BufferId buffer, place(graph.outputs[i].value));
      deliver_output(plan, buffer, static_cast<int>(i));
    }
    added.keep();
    return plan;
  }
};

}  // namespace

std::unique_ptr<Device> make_reference_device() { return std::make_unique<ReferenceDevice>(); }

}  // namespace shoal::worker
