// The backend "cpu-reference": runs every node by its oracle kernel, in plain layout, in every type. Tests compare the others
// with it.
#include <algorithm>
#include <cstring>

#include "shm/base/errors.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/body_step.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/oracle_step.hpp"

namespace shoal::worker {
namespace {

class ReferenceBackend : public Backend {
 public:
  std::string identity() const override { return "cpu-reference"; }
  Claims claim(const Graph& graph) const override { return Claims::of_all(graph); }

  Result<Plan> prepare(const Graph& graph, WeightStore& weights, const Choices& choices) const override {
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
        buffer = add_value_buffer(graph.value(id), plan);
      }
      return buffer;
    };
    for (const Node& node : graph.nodes) {
      std::vector<PlacedTensor> src, dst;
      for (const ValueId id : node.inputs) {
        SHOAL_ASSIGN_OR_RETURN(const BufferId buffer, place(id));
        src.push_back({graph.value(id).dtype, graph.value(id).shape, buffer, graph.value(id).name});
      }
      for (const ValueId id : node.outputs) {
        BufferId buffer = kNoBuffer;
        if (read[static_cast<std::size_t>(id)]) {
          SHOAL_ASSIGN_OR_RETURN(buffer, place(id));
        }
        dst.push_back({graph.value(id).dtype, graph.value(id).shape, buffer, graph.value(id).name});
      }
      if (node.bodies.empty()) {
        add_oracle_step(plan, node, src, dst);
      } else {
        const auto compile = [&](const Graph& body) { return prepare(body, weights, choices); };
        SHOAL_RETURN_IF_ERROR(add_body_step(plan, node, src, dst, weights, compile));
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

Result<std::shared_ptr<const Backend>> make_reference(const ModelOptions&) {
  return std::shared_ptr<const Backend>(std::make_shared<ReferenceBackend>());
}
const BackendRegistration kRegistration("cpu-reference", make_reference);

}  // namespace
}  // namespace shoal::worker
