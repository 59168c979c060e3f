// make_partition() against brute force: every partition of every small graph.
#include "worker/partition/partition.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <set>

#include "tests/support/sanitizers.hpp"

namespace shoal::worker {
namespace {

/// Edges between nodes 0 to size - 1: bit `to` of readers[from], to > from.
struct Dag {
  std::size_t size = 0;
  std::array<std::uint32_t, 16> readers{};
};

/// Every node makes one value. Nodes without inputs read the graph's input; values that nobody reads are outputs.
Graph graph_of(const Dag& dag) {
  Graph graph;
  const ValueId input = graph.add_value({.name = "data"});
  graph.inputs = {input};
  for (std::size_t node = 0; node < dag.size; ++node) {
    graph.nodes.push_back({.name = "n" + std::to_string(node), .source_op = "Op"});
    graph.nodes.back().outputs = {graph.add_value({.name = "v" + std::to_string(node)})};
  }
  for (std::size_t from = 0; from < dag.size; ++from) {
    for (std::size_t to = 0; to < dag.size; ++to) {
      if ((dag.readers[from] >> to & 1) != 0) graph.nodes[to].inputs.push_back(graph.nodes[from].outputs[0]);
    }
    if (dag.readers[from] == 0) graph.outputs.push_back({"out", graph.nodes[from].outputs[0]});
  }
  for (Node& node : graph.nodes) {
    if (node.inputs.empty()) node.inputs = {input};
  }
  return graph;
}

/// Is the quotient acyclic, when node n is in block[n]? By removing blocks of which nothing is read any more.
bool is_acyclic(const Dag& dag, const std::array<std::uint8_t, 16>& block) {
  std::array<std::uint32_t, 16> reads{};  // per block: the blocks that read it
  std::uint32_t left = 0;
  for (std::size_t from = 0; from < dag.size; ++from) {
    left |= 1u << block[from];
    for (std::uint32_t to = dag.readers[from]; to != 0; to &= to - 1) {
      const auto other = block[static_cast<std::size_t>(std::countr_zero(to))];
      if (other != block[from]) reads[block[from]] |= 1u << other;
    }
  }
  for (bool removed = true; removed;) {
    removed = false;
    for (std::uint32_t each = left; each != 0; each &= each - 1) {
      const auto one = static_cast<std::size_t>(std::countr_zero(each));
      if ((reads[one] & left) != 0) continue;
      left &= ~(1u << one);
      removed = true;
    }
  }
  return left == 0;
}

std::array<std::uint8_t, 16> blocks_of(const Partition& partition) {
  std::array<std::uint8_t, 16> block{};
  for (std::size_t part = 0; part < partition.size(); ++part) {
    for (const NodeId node : partition[part].nodes) block[static_cast<std::size_t>(node)] = static_cast<std::uint8_t>(part);
  }
  return block;
}

/// Each node once and in a part of its backend, the quotient acyclic, the parts in an order in which they can run.
void expect_valid(const Dag& dag, const Partition& partition, std::span<const std::size_t> backend_of) {
  std::vector<NodeId> nodes;
  for (const Part& part : partition) {
    ASSERT_FALSE(part.nodes.empty());
    ASSERT_TRUE(std::ranges::is_sorted(part.nodes));
    for (const NodeId node : part.nodes) ASSERT_EQ(backend_of[static_cast<std::size_t>(node)], part.backend);
    nodes.insert(nodes.end(), part.nodes.begin(), part.nodes.end());
  }
  std::ranges::sort(nodes);
  ASSERT_EQ(nodes.size(), dag.size);
  for (std::size_t node = 0; node < dag.size; ++node) ASSERT_EQ(nodes[node], static_cast<NodeId>(node));
  const auto block = blocks_of(partition);
  ASSERT_TRUE(is_acyclic(dag, block));
  for (std::size_t from = 0; from < dag.size; ++from) {
    for (std::size_t to = 0; to < dag.size; ++to) {
      const bool is_edge = (dag.readers[from] >> to & 1) != 0;
      ASSERT_TRUE(!is_edge || block[from] <= block[to]);
    }
  }
}

/// The claims of as many backends, the last of which takes everything, so that node n goes to backend_of[n].
std::vector<Claims> claims_for(std::span<const std::size_t> backend_of, std::size_t backends) {
  std::vector<Claims> claims(backends);
  for (std::size_t backend = 0; backend < backends; ++backend) {
    for (const std::size_t chosen : backend_of) {
      const bool takes = backend == chosen || backend + 1 == backends;
      claims[backend].why_not.emplace_back(takes ? "" : "no");
    }
  }
  return claims;
}

/// All ways to divide `size` nodes into blocks.
std::vector<std::array<std::uint8_t, 16>> all_divisions(std::size_t size) {
  std::vector<std::array<std::uint8_t, 16>> all{{}};
  for (std::size_t node = 1; node < size; ++node) {
    std::vector<std::array<std::uint8_t, 16>> longer;
    for (const auto& division : all) {
      const int blocks = *std::max_element(division.begin(), division.begin() + static_cast<std::ptrdiff_t>(node)) + 1;
      for (int block = 0; block <= blocks; ++block) {
        longer.push_back(division);
        longer.back()[node] = static_cast<std::uint8_t>(block);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::size_t block_count(const std::array<std::uint8_t, 16>& division, std::size_t size) {
  return static_cast<std::size_t>(*std::max_element(division.begin(), division.begin() + static_cast<std::ptrdiff_t>(size))) + 1;
}

/// The edges of a number: bit k says whether the k-th pair (0,1), (0,2), (1,2), (0,3)... is an edge.
Dag dag_of(std::size_t size, std::uint64_t edges) {
  Dag dag{.size = size};
  for (std::size_t to = 1, bit = 0; to < size; ++to) {
    for (std::size_t from = 0; from < to; ++from, ++bit) {
      if ((edges >> bit & 1) != 0) dag.readers[from] |= 1u << to;
    }
  }
  return dag;
}

/// Every graph of `size` nodes with every choice of backends for its nodes.
void compare_with_brute_force(std::size_t size, std::size_t backends) {
  const auto divisions = all_divisions(size);
  std::vector<std::vector<std::size_t>> choices{{}};
  for (std::size_t node = 0; node < size; ++node) {
    std::vector<std::vector<std::size_t>> longer;
    for (const auto& choice : choices) {
      for (std::size_t backend = 0; backend < backends; ++backend) {
        longer.push_back(choice);
        longer.back().push_back(backend);
      }
    }
    choices = std::move(longer);
  }
  std::vector<std::vector<std::size_t>> fitting(choices.size());  // the divisions whose blocks have one backend each
  std::vector<std::vector<Claims>> claims;
  for (std::size_t c = 0; c < choices.size(); ++c) {
    claims.push_back(claims_for(choices[c], backends));
    for (std::size_t d = 0; d < divisions.size(); ++d) {
      bool fits = true;
      for (std::size_t a = 0; a < size; ++a) {
        for (std::size_t b = 0; b < a; ++b) fits &= divisions[d][a] != divisions[d][b] || choices[c][a] == choices[c][b];
      }
      if (fits) fitting[c].push_back(d);
    }
  }
  std::size_t worst_above = 0;
  for (std::uint64_t edges = 0; edges < std::uint64_t{1} << (size * (size - 1) / 2); ++edges) {
    const Dag dag = dag_of(size, edges);
    const Graph graph = graph_of(dag);
    std::vector<std::size_t> parts_of(divisions.size(), size + 1);  // of the acyclic ones
    for (std::size_t d = 0; d < divisions.size(); ++d) {
      if (is_acyclic(dag, divisions[d])) parts_of[d] = block_count(divisions[d], size);
    }
    for (std::size_t c = 0; c < choices.size(); ++c) {
      std::size_t fewest = size;
      for (const std::size_t d : fitting[c]) fewest = std::min(fewest, parts_of[d]);
      const Partition partition = make_partition(graph, claims[c]).value();
      ASSERT_NO_FATAL_FAILURE(expect_valid(dag, partition, choices[c])) << "edges " << edges << ", choice " << c;
      ASSERT_LE(partition.size(), 1 + (backends - 1) * (fewest - 1)) << "edges " << edges << ", choice " << c;
      worst_above = std::max(worst_above, partition.size() - fewest);
    }
  }
  std::printf("%zu nodes, %zu backends: at most %zu parts more than the fewest\n", size, backends, worst_above);
}

TEST(MakePartition, FindsTheFewestPartsOfEveryGraphOfUpToSixNodesWithTwoBackends) {
  for (std::size_t size = 1; size <= (test::kSanitized ? 5 : 6); ++size) compare_with_brute_force(size, 2);
}

TEST(MakePartition, KeepsItsBoundForEveryGraphOfUpToFiveNodesWithThreeBackends) {
  for (std::size_t size = 1; size <= (test::kSanitized ? 4 : 5); ++size) compare_with_brute_force(size, 3);
}

/// The fewest parts, as the shortest way through the sets of nodes that have run: one step runs more nodes of one backend.
std::size_t fewest_parts(const Dag& dag, std::span<const std::size_t> backend_of, std::size_t backends) {
  std::array<std::uint32_t, 16> needs{};
  for (std::size_t from = 0; from < dag.size; ++from) {
    for (std::size_t to = 0; to < dag.size; ++to) needs[to] |= (dag.readers[from] >> to & 1) << from;
  }
  const std::uint32_t all = (1u << dag.size) - 1;
  std::set<std::uint32_t> reached{0};
  for (std::size_t parts = 0;; ++parts) {
    if (reached.contains(all)) return parts;
    std::set<std::uint32_t> next;
    for (const std::uint32_t done : reached) {
      for (std::size_t backend = 0; backend < backends; ++backend) {
        // All subsets that one part may run, grown node by node: the largest alone would assume what is to be shown.
        std::vector<std::uint32_t> open{done};
        for (std::size_t i = 0; i < open.size(); ++i) {
          for (std::size_t node = 0; node < dag.size; ++node) {
            const std::uint32_t more = open[i] | 1u << node;
            if (more == open[i] || backend_of[node] != backend || (needs[node] & ~open[i]) != 0 || next.contains(more)) continue;
            next.insert(more);
            open.push_back(more);
          }
        }
      }
    }
    reached = std::move(next);
  }
}

TEST(MakePartition, HoldsForRandomGraphsOfUpToTwelveNodes) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 400; ++round) {
    const std::size_t size = 7 + random() % 6, backends = 2 + random() % 2;
    Dag dag{.size = size};
    const std::uint64_t density = 1 + random() % 8;
    for (std::size_t to = 1; to < size; ++to) {
      for (std::size_t from = 0; from < to; ++from) {
        if (random() % 10 < density) dag.readers[from] |= 1u << to;
      }
    }
    std::vector<std::size_t> backend_of;
    for (std::size_t node = 0; node < size; ++node) backend_of.push_back(random() % backends);
    SCOPED_TRACE("round " + std::to_string(round));
    Partition partition = make_partition(graph_of(dag), claims_for(backend_of, backends)).value();
    ASSERT_NO_FATAL_FAILURE(expect_valid(dag, partition, backend_of));
    const std::size_t fewest = fewest_parts(dag, backend_of, backends);
    ASSERT_LE(partition.size(), 1 + (backends - 1) * (fewest - 1));
    // Give parts to the last backend until nothing else is left.
    while (partition.size() > 1) {
      const std::size_t part = random() % partition.size();
      for (const NodeId node : partition[part].nodes) backend_of[static_cast<std::size_t>(node)] = backends - 1;
      dissolve(partition, part, backends - 1);
      ASSERT_NO_FATAL_FAILURE(expect_valid(dag, partition, backend_of));
      for (std::size_t i = 0; part < partition.size() && i + 1 < partition.size(); ++i)
        ASSERT_FALSE(partition[i].backend == backends - 1 && partition[i + 1].backend == backends - 1);
    }
  }
}

TEST(MakePartition, TwoConvexPartsThatWouldWaitForEachOtherAreThree) {
  const Dag dag{.size = 4, .readers = {1u << 2, 1u << 3}};  // a -> c, b -> d
  const std::size_t backend_of[] = {0, 1, 1, 0};            // {a, d} and {b, c}
  ASSERT_FALSE(is_acyclic(dag, {0, 1, 1, 0}));
  EXPECT_EQ(make_partition(graph_of(dag), claims_for(backend_of, 2)).value().size(), 3u);
}

TEST(MakePartition, AGraphThatOneBackendTakesIsOnePartInItsOrder) {
  const Dag dag = dag_of(6, 0x7fff);
  const std::size_t backend_of[] = {1, 1, 1, 1, 1, 1};
  const Partition partition = make_partition(graph_of(dag), claims_for(backend_of, 2)).value();
  ASSERT_EQ(partition.size(), 1u);
  EXPECT_EQ(partition[0].nodes, (std::vector<NodeId>{0, 1, 2, 3, 4, 5}));
}

TEST(MakePartition, AnEmptyGraphHasNoParts) { EXPECT_TRUE(make_partition(Graph(), std::vector<Claims>(2)).value().empty()); }

TEST(MakePartition, NamesTheNodeThatNobodyTakesAndEachReason) {
  const Graph graph = graph_of({.size = 2, .readers = {2}});
  const std::vector<Claims> claims{{{"", "fake: rank 5"}}, {{"", "other: no such operator"}}};
  const Status status = make_partition(graph, claims).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "Op 'n1': no backend takes it: fake: rank 5; other: no such operator");
}

/// 50 000 nodes: residual blocks whose backends alternate at random, each node with up to three inputs of the 40 before it.
TEST(MakePartition, TakesTimeInProportionToTheGraph) {
  const auto build = [](std::size_t size) {
    std::mt19937_64 random(3);
    Graph graph;
    graph.inputs = {graph.add_value({.name = "data"})};
    std::vector<Claims> claims(2);
    for (std::size_t node = 0; node < size; ++node) {
      Node each{.name = "n", .source_op = "Op"};
      for (std::uint64_t i = 0, inputs = 1 + random() % 3; i < inputs; ++i)
        each.inputs.push_back(static_cast<ValueId>(node - std::min<std::uint64_t>(node, random() % 40)));
      each.outputs = {graph.add_value({.name = "v"})};
      graph.nodes.push_back(std::move(each));
      claims[0].why_not.emplace_back(random() % 2 == 0 ? "" : "no");
      claims[1].why_not.emplace_back();
    }
    graph.outputs = {{"out", graph.nodes.back().outputs[0]}};
    return std::pair{std::move(graph), std::move(claims)};
  };
  const auto time_of = [&](std::size_t size) {
    const auto [graph, claims] = build(size);
    const auto start = std::chrono::steady_clock::now();
    const Partition partition = make_partition(graph, claims).value();
    const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%zu nodes: %zu parts in %.1f ms\n", size, partition.size(), took * 1e3);
    return took;
  };
  EXPECT_LT(time_of(50'000), 2.0);  // it takes some 10 ms: only a quadratic algorithm comes near
}

TEST(PartGraphs, HaveTheValuesThatPassBetweenParts) {
  // 0 -> 1 -> 3 -> 4, 0 -> 2 -> 3, 1 is an output, too; {0, 1} and {2} and {3, 4}.
  const Dag dag{.size = 5, .readers = {1u << 1 | 1u << 2, 1u << 3, 1u << 3, 1u << 4}};
  Graph graph = graph_of(dag);
  graph.outputs.push_back({"second", graph.nodes[1].outputs[0]});
  const ValueId weight = graph.add_value({.name = "w", .constant = Constant{}});
  graph.nodes[3].inputs.push_back(weight);
  const Partition partition{{0, {0, 1}}, {1, {2}}, {0, {3, 4}}};
  const PartGraphs graphs(graph, partition);
  const auto made_by = [&](std::size_t node) { return graph.nodes[node].outputs[0]; };
  const auto outputs_of = [](const Graph& part) {
    std::vector<ValueId> ids;
    for (const GraphOutput& output : part.outputs) ids.push_back(output.value);
    return ids;
  };
  const Graph first = graphs.of(0), second = graphs.of(1), third = graphs.of(2);
  EXPECT_EQ(first.inputs, graph.inputs);
  EXPECT_EQ(outputs_of(first), (std::vector{made_by(0), made_by(1)}));
  EXPECT_EQ(first.value(made_by(1)).producer, 1);
  EXPECT_EQ(second.inputs, std::vector{made_by(0)});
  EXPECT_EQ(outputs_of(second), std::vector{made_by(2)});
  EXPECT_EQ(second.value(made_by(2)).producer, 0);
  EXPECT_EQ(third.inputs, (std::vector{made_by(1), made_by(2)})) << "the weight is no input";
  EXPECT_EQ(third.value(made_by(1)).producer, kNoNode);
  EXPECT_TRUE(third.value(weight).constant.has_value());
  EXPECT_EQ(outputs_of(third), std::vector{made_by(4)}) << "3 stays inside";
}

}  // namespace
}  // namespace shoal::worker
