// Random graphs: operators, attributes, types, shapes, fan-out, residuals and bodies by seed. The device cpu, with fused steps
// and without, answers as the oracle kernels do.
//
//   SHOAL_RANDOM_GRAPHS  how many seeds; tests/fuzz/README.md has the recorded runs
//   SHOAL_RANDOM_SEED    the first one
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/whole_load.hpp"
#include "tests/support/sanitizers.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {
namespace {

using fuzz::LoadFlags;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// What the fuzzer would be given. The graph grows until the bytes end.
std::vector<std::uint8_t> bytes_of(std::uint64_t seed) {
  std::mt19937_64 numbers(seed);
  std::vector<std::uint8_t> bytes(40 + numbers() % 600);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(numbers());
  bytes[0] &= static_cast<std::uint8_t>(~LoadFlags::kIsText);
  if (seed % 4 != 0) bytes[0] &= static_cast<std::uint8_t>(~LoadFlags::kOtherType);  // most graphs compute in float32
  if (seed % 8 == 1)
    bytes[1] |= LoadFlags::kSteps | LoadFlags::kHostile;
  else if (seed % 8 != 0)
    bytes[1] &= static_cast<std::uint8_t>(~LoadFlags::kSteps);
  return bytes;
}

constexpr std::size_t kMostFailures = 20;  // that are printed

TEST(RandomGraphs, AnswerOnCpuFusedAndUnfusedAsByTheOracle) {
  const std::uint64_t first = number_from("SHOAL_RANDOM_SEED", 1),
                      count = number_from("SHOAL_RANDOM_GRAPHS", test::kSanitized ? 20 : 200);
  std::size_t failures = 0, ran = 0, compared = 0, loosely = 0, bodies = 0;
  for (std::uint64_t seed = first; seed < first + count && failures < kMostFailures; ++seed) {
    std::vector<std::uint8_t> bytes = bytes_of(seed);
    for (const bool fused : {true, false}) {
      if (fused) bytes[0] &= static_cast<std::uint8_t>(~LoadFlags::kUnfused);
      if (!fused) bytes[0] |= LoadFlags::kUnfused;
      fuzz::ByteSource source(bytes);
      const fuzz::LoadOutcome outcome = fuzz::check_whole_load(source);
      ran += outcome.ran;
      compared += outcome.compared;
      loosely += outcome.loosely_compared;
      bodies += outcome.bodies;
      failures += !outcome.wrong.empty();
      EXPECT_EQ(outcome.wrong, "") << "seed " << seed << (fused ? ", fused" : ", unfused") << ", data "
                                   << outcome.data.shape.to_string() << "\n"
                                   << outcome.symbol;
    }
  }
  std::printf(
      "seeds %llu to %llu, fused and unfused: %zu runs of both devices, %zu compared, %zu outputs loosely, %zu nodes with "
      "bodies\n",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1), ran, compared, loosely, bodies);
  EXPECT_GT(ran, count) << "most seeds must make graphs that run";
  EXPECT_GT(compared, count);
  EXPECT_GT(bodies, count);
}

/// The graph of nothing but that operator that the seed gives, with every flag that the operator may need.
fuzz::LoadOutcome graph_of(const std::string& op, std::uint64_t seed) {
  std::vector<std::uint8_t> bytes = bytes_of(seed);
  bytes.resize(60);  // of few nodes
  if (seed % 2 == 0) bytes[0] &= static_cast<std::uint8_t>(~LoadFlags::kOtherType);
  bytes[1] |= LoadFlags::kSteps;
  fuzz::ByteSource source(bytes);
  return fuzz::check_whole_load(source, op);
}

TEST(RandomGraphs, ContainEveryOperator) {
  constexpr std::uint64_t kMostTries = 300;
  for (const MxnetOperator* const op : all_mxnet_operators()) {
    if (!op->alias_of.empty()) continue;
    fuzz::LoadOutcome outcome;
    const std::string node = "\"op\":\"" + op->name + '"';
    for (std::uint64_t seed = 1; seed <= kMostTries; ++seed) {
      outcome = graph_of(op->name, seed);
      EXPECT_EQ(outcome.wrong, "") << op->name << ", seed " << seed << "\n" << outcome.symbol;
      if (outcome.ran && outcome.symbol.find(node) != std::string::npos) break;
    }
    EXPECT_TRUE(outcome.ran && outcome.symbol.find(node) != std::string::npos)
        << op->name << ": no random graph has it: see tests/fuzz/operator_rules.hpp";
  }
}

}  // namespace
}  // namespace shoal::worker
