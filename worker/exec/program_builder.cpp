#include "worker/exec/program_builder.hpp"

#include <algorithm>
#include <map>

#include "shm/base/errors.hpp"
#include "worker/exec/link.hpp"

namespace shoal::worker {
namespace {

// No backend's part may have a value that is sized while the program runs: parts are joined by their largest sizes.
bool has_sizes_behind_data(const Graph& graph) {
  return std::ranges::any_of(graph.values, [](const Value& value) { return value.expressions != nullptr; });
}

// All parts of one backend as one graph. Taken together they and the others may wait for each other, but this graph is not run.
Graph nodes_of(const Graph& graph, const Partition& partition, std::size_t backend) {
  Partition two(2);
  for (const Part& part : partition) {
    std::vector<NodeId>& nodes = two[part.backend == backend ? 0 : 1].nodes;
    nodes.insert(nodes.end(), part.nodes.begin(), part.nodes.end());
  }
  std::ranges::sort(two[0].nodes);
  return PartGraphs(graph, two).of(0);
}

}  // namespace

Result<Fallback> parse_fallback(const std::string& word) {
  if (word == "cpu") return Fallback::kCpu;
  if (word == "error") return Fallback::kError;
  return invalid_argument("fallback '{}' is not known: there are cpu and error", word);
}

std::string ProgramBuilder::identity() const {
  std::string all;
  for (const auto& backend : backends_) all += (all.empty() ? "" : "; ") + backend->identity();
  if (has_devices()) all += fallback_ == Fallback::kCpu ? "; fallback cpu" : "; fallback error";  // decides what is packed
  return all;
}

void ProgramBuilder::enter_thread() const {
  for (const auto& backend : backends_) backend->enter_thread();
}

Result<Partition> ProgramBuilder::partition(const Graph& graph) const {
  std::vector<Claims> claims;
  for (const auto& backend : backends_) claims.push_back(backend->claim(graph));
  return make_partition(graph, claims);
}

Result<Graph> ProgramBuilder::host_graph(const Graph& graph) const {
  if (!has_devices() || has_sizes_behind_data(graph)) return graph;
  SHOAL_ASSIGN_OR_RETURN(const Partition parts, partition(graph));
  return nodes_of(graph, parts, host_index());
}

Result<std::shared_ptr<const PlannedProgram>> ProgramBuilder::build(const Graph& graph,
                                                                    const std::shared_ptr<WeightStore>& weights,
                                                                    const Choices& choices,
                                                                    std::vector<std::string>& notes) const {
  AddedWeights added(*weights);
  SHOAL_ASSIGN_OR_RETURN(Plan plan, prepare(graph, *weights, choices, notes));
  std::shared_ptr<const PlannedProgram> on_host;
  if (!plan.devices.empty() && fallback_ == Fallback::kCpu) {
    SHOAL_ASSIGN_OR_RETURN(Plan twin, host().prepare(graph, *weights, choices));
    on_host = std::make_shared<const PlannedProgram>(std::move(twin), weights);
  }
  auto program = std::make_shared<const PlannedProgram>(std::move(plan), weights, std::move(on_host));
  added.keep();
  return std::shared_ptr<const PlannedProgram>(std::move(program));
}

Result<Plan> ProgramBuilder::prepare(const Graph& graph, WeightStore& weights, const Choices& choices,
                                     std::vector<std::string>& notes) const {
  if (!has_devices()) return host().prepare(graph, weights, choices);
  if (has_sizes_behind_data(graph)) {
    constexpr const char* kWhy = "a size in the graph depends on data, and only the CPU runs such graphs";
    if (fallback_ == Fallback::kError) return unimplemented(kWhy);
    notes.push_back(format("all nodes run on the CPU instead: {}", kWhy));
    return host().prepare(graph, weights, choices);
  }
  SHOAL_ASSIGN_OR_RETURN(Partition parts, partition(graph));
  // The devices first: what they refuse joins the host's parts.
  std::map<NodeId, Plan> prepared;  // of devices, by the part's first node
  for (std::size_t i = 0; i < parts.size();) {
    const Part& part = parts[i];
    if (part.backend == host_index() || prepared.contains(part.nodes.front())) {
      ++i;
      continue;
    }
    auto plan = backends_[part.backend]->prepare(PartGraphs(graph, parts).of(i), weights, choices);
    if (plan.ok()) {
      prepared.emplace(part.nodes.front(), *std::move(plan));
      ++i;
      continue;
    }
    if (fallback_ == Fallback::kError) return plan.status();
    notes.push_back(format("{} nodes from {} on run on the CPU instead: {}", part.nodes.size(),
                           describe(graph.nodes[static_cast<std::size_t>(part.nodes.front())]), plan.status().message()));
    dissolve(parts, i, host_index());
    if (i > 0) --i;  // it may have joined the part before it
  }
  if (prepared.empty()) return host().prepare(graph, weights, choices);
  const PartGraphs graphs(graph, parts);
  std::vector<PreparedPart> linked;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool is_host = parts[i].backend == host_index();
    const Graph own = graphs.of(i);
    PreparedPart& part = linked.emplace_back(
        PreparedPart{.space = is_host ? kHost : static_cast<Space>(parts[i].backend) + 1, .inputs = own.inputs});
    for (const GraphOutput& output : own.outputs) part.outputs.push_back(output.value);
    if (is_host) {
      SHOAL_ASSIGN_OR_RETURN(part.plan, host().prepare(own, weights, choices));
    } else {
      part.plan = std::move(prepared.at(parts[i].nodes.front()));
    }
  }
  return link_parts(graph, std::move(linked), {backends_.begin(), backends_.end() - 1}, weights);
}

}  // namespace shoal::worker
