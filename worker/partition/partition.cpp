#include "worker/partition/partition.hpp"

#include <algorithm>
#include <iterator>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"

namespace shoal::worker {
namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

/// Which nodes read what each node makes; a node that reads two outputs is there twice.
class Readers {
 public:
  explicit Readers(const Graph& graph) : begin_(graph.nodes.size() + 1), unread_(graph.nodes.size()) {
    std::vector<NodeId> producer(graph.values.size(), kNoNode);
    for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
      for (const ValueId output : graph.nodes[id].outputs) producer[at(output)] = static_cast<NodeId>(id);
    }
    const auto for_each_edge = [&](auto visit) {
      for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
        for (const ValueId input : graph.nodes[id].inputs) {
          if (producer[at(input)] != kNoNode) visit(at(producer[at(input)]), id);
        }
      }
    };
    for_each_edge([&](std::size_t from, std::size_t to) {
      ++begin_[from + 1];
      ++unread_[to];
    });
    for (std::size_t id = 0; id < graph.nodes.size(); ++id) begin_[id + 1] += begin_[id];
    readers_.resize(begin_.back());
    std::vector<std::size_t> next = begin_;
    for_each_edge([&](std::size_t from, std::size_t to) { readers_[next[from]++] = static_cast<NodeId>(to); });
  }

  std::span<const NodeId> of(NodeId id) const {
    return std::span(readers_).subspan(begin_[at(id)], begin_[at(id) + 1] - begin_[at(id)]);
  }
  /// Per node: how many of its inputs other nodes make.
  const std::vector<std::size_t>& waits_for() const { return unread_; }

 private:
  std::vector<std::size_t> begin_, unread_;
  std::vector<NodeId> readers_;
};

/// Divides an order of the nodes into runs of one backend. A run takes all nodes of its backend that can run by then; the next
/// run is of the next backend that has a node to run.
Partition grow(const Readers& readers, const std::vector<std::size_t>& backend_of, std::size_t backend_count, std::size_t first) {
  std::vector<std::size_t> waits_for = readers.waits_for();
  std::vector<std::vector<NodeId>> ready(backend_count);
  std::size_t left = waits_for.size();
  for (std::size_t id = 0; id < waits_for.size(); ++id) {
    if (waits_for[id] == 0) ready[backend_of[id]].push_back(static_cast<NodeId>(id));
  }
  Partition partition;
  for (std::size_t backend = first; left > 0; backend = (backend + 1) % backend_count) {
    if (ready[backend].empty()) continue;
    Part& part = partition.emplace_back(Part{backend, {}});
    while (!ready[backend].empty()) {
      const NodeId id = ready[backend].back();
      ready[backend].pop_back();
      part.nodes.push_back(id);
      for (const NodeId reader : readers.of(id)) {
        if (--waits_for[at(reader)] == 0) ready[backend_of[at(reader)]].push_back(reader);
      }
    }
    std::ranges::sort(part.nodes);
    left -= part.nodes.size();
  }
  return partition;
}

Result<std::size_t> choose_backend(const Graph& graph, std::span<const Claims> claims, NodeId id) {
  for (std::size_t backend = 0; backend < claims.size(); ++backend) {
    if (claims[backend].takes(id)) return backend;
  }
  std::string reasons;
  for (const Claims& claim : claims) reasons += (reasons.empty() ? "" : "; ") + claim.why_not[at(id)];
  return unimplemented("{}: no backend takes it: {}", describe(graph.nodes[at(id)]), reasons);
}

}  // namespace

Result<Partition> make_partition(const Graph& graph, std::span<const Claims> claims) {
  for (const Claims& claim : claims) SHOAL_CHECK(claim.why_not.size() == graph.nodes.size());
  std::vector<std::size_t> backend_of(graph.nodes.size());
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    SHOAL_ASSIGN_OR_RETURN(backend_of[id], choose_backend(graph, claims, static_cast<NodeId>(id)));
  }
  const Readers readers(graph);
  Partition best;
  for (std::size_t first = 0; first < claims.size(); ++first) {
    Partition partition = grow(readers, backend_of, claims.size(), first);
    if (best.empty() || partition.size() < best.size()) best = std::move(partition);
  }
  return best;
}

void dissolve(Partition& partition, std::size_t part, std::size_t backend) {
  partition[part].backend = backend;
  const auto join_with_next = [&](std::size_t index) {
    std::vector<NodeId> joined;
    std::ranges::merge(partition[index].nodes, partition[index + 1].nodes, std::back_inserter(joined));
    partition[index].nodes = std::move(joined);
    partition.erase(partition.begin() + static_cast<std::ptrdiff_t>(index) + 1);
  };
  if (part + 1 < partition.size() && partition[part + 1].backend == backend) join_with_next(part);
  if (part > 0 && partition[part - 1].backend == backend) join_with_next(part - 1);
}

PartGraphs::PartGraphs(const Graph& graph, const Partition& partition)
    : graph_(graph), partition_(partition), leaves_part_(graph.values.size()) {
  constexpr std::size_t kNoPart = ~std::size_t{0};
  std::vector<std::size_t> made_in(graph.values.size(), kNoPart);
  for (std::size_t part = 0; part < partition.size(); ++part) {
    for (const NodeId id : partition[part].nodes) {
      for (const ValueId output : graph.nodes[at(id)].outputs) made_in[at(output)] = part;
    }
  }
  for (std::size_t part = 0; part < partition.size(); ++part) {
    for (const NodeId id : partition[part].nodes) {
      for (const ValueId input : graph.nodes[at(id)].inputs) {
        if (made_in[at(input)] != part) leaves_part_[at(input)] = true;
      }
    }
  }
  for (const GraphOutput& output : graph.outputs) leaves_part_[at(output.value)] = true;
}

Graph PartGraphs::of(std::size_t part) const {
  Graph own;
  own.values.resize(graph_.values.size());
  std::vector<bool> made(graph_.values.size());
  std::vector<ValueId> read, left;
  for (const NodeId id : partition_[part].nodes) {
    const Node& node = graph_.nodes[at(id)];
    for (const ValueId output : node.outputs) {
      own.value(output) = graph_.value(output);
      own.value(output).producer = static_cast<NodeId>(own.nodes.size());
      made[at(output)] = true;
      if (leaves_part_[at(output)]) left.push_back(output);
    }
    for (const ValueId input : node.inputs) {
      if (made[at(input)]) continue;
      own.value(input) = graph_.value(input);
      own.value(input).producer = kNoNode;
      if (!graph_.value(input).constant) read.push_back(input);
    }
    own.nodes.push_back(node);
  }
  std::ranges::sort(read);
  read.erase(std::unique(read.begin(), read.end()), read.end());
  own.inputs = std::move(read);
  std::ranges::sort(left);
  for (const ValueId id : left) own.outputs.push_back({graph_.value(id).name, id});
  return own;
}

}  // namespace shoal::worker
