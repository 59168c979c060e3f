#include "worker/exec/weight_store.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/worker/exec/graph_builder.hpp"

namespace shoal::worker {
namespace {

using testing::load;
using testing::spec;

Graph small_network(double eps = 1e-5) {
  testing::GraphBuilder b;
  const ValueId x = b.conv(b.input("data"), 3, 32, 3);
  const ValueId norm = b.node("BatchNorm", {x, b.constant({32}, 1), b.constant({32}), b.constant({32}), b.constant({32}, 2)},
                              BatchNormAttributes{.eps = eps, .fix_gamma = false}, 3);
  b.output(b.fully_connected(b.global_average(b.activation(norm)), 32, 10));
  return b.graph();
}
const std::vector<TensorSpec> kInputs = {spec("data", {1, 3, 16, 16})};

std::vector<std::byte> bytes_of(const Model& model) {
  const UniqueFd copy = duplicate_fd(model.packed_fd()).value();
  const Segment segment = Segment::map(copy, Segment::Access::kReadOnly).value();
  return {segment.bytes().begin(), segment.bytes().end()};
}

class PackedWeights : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Devices, PackedWeights, ::testing::Values("cpu", "cpu-reference"),
                         [](const auto& info) { return std::string(info.param) == "cpu" ? "Cpu" : "Reference"; });

TEST_P(PackedWeights, AreTheSameBytesForEqualLoads) {
  EXPECT_EQ(bytes_of(*load(small_network(), kInputs, GetParam())), bytes_of(*load(small_network(), kInputs, GetParam())));
}

TEST_P(PackedWeights, OfAnEqualLoadAreMappedAndUsed) {
  const auto first = load(small_network(), kInputs, GetParam());
  auto second =
      Model::load(small_network(), {.device = GetParam(), .input_sets = {kInputs}}, duplicate_fd(first->packed_fd()).value());
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  Context a, b;
  EXPECT_TRUE(testing::same_bits(testing::run(**first->program(kInputs), a), testing::run(**(*second)->program(kInputs), b)));
}

TEST_P(PackedWeights, OfAnotherModelAreRefused) {
  const auto first = load(small_network(), kInputs, GetParam());
  const auto other =
      Model::load(small_network(1e-3), {.device = GetParam(), .input_sets = {kInputs}}, duplicate_fd(first->packed_fd()).value());
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
}

TEST(WeightStore, WeightsOfAnotherWidthAreRefused) {
  const auto first = load(small_network(), kInputs);
  const auto other =
      Model::load(small_network(), {.threads = 2, .input_sets = {kInputs}}, duplicate_fd(first->packed_fd()).value());
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
}

TEST(WeightStore, AModelWithoutConstantsHasNoSegment) {
  testing::GraphBuilder b;
  b.output(b.activation(b.input("data")));
  const auto model = load(b.graph(), {spec("data", {2, 3})});
  EXPECT_EQ(model->packed_fd(), -1);
  EXPECT_EQ(model->packed_bytes(), 0U);
}

TEST(WeightStore, ARottenTableIsRefused) {
  const auto made = [](auto spoil) {
    UniqueFd fd = create_memfd("test", 1 << 16).value();
    {
      Segment writable = Segment::map(fd, Segment::Access::kReadWrite).value();
      spoil(writable.mutable_bytes());
    }
    EXPECT_TRUE(seal(fd, Seals::kReadOnly).ok());
    return WeightStore::open({}, std::move(fd)).status().code();
  };
  EXPECT_EQ(made([](std::span<std::byte>) {}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(made([](std::span<std::byte> bytes) {
              std::memcpy(bytes.data(), "SHOALWTS", 8);
              const std::uint32_t head[] = {1, 0x7FFFFFFF};  // far more entries than fit
              std::memcpy(bytes.data() + 8, head, sizeof head);
            }),
            StatusCode::kFailedPrecondition);
}

using WeightStoreDeathTest = ::testing::Test;
TEST(WeightStoreDeathTest, AStrayWriteToPackedWeightsIsASegmentationFault) {
  WeightStore store({});
  const int index = store.add("w", WeightStore::kPlain, 64, [](std::span<std::byte> dst) -> Status {
    std::memset(dst.data(), 1, dst.size());
    return {};
  });
  ASSERT_TRUE(store.seal().ok());
  EXPECT_EQ(store.address(index)[63], std::byte{1});
  // SIGSEGV; under AddressSanitizer its report and an exit.
  EXPECT_DEATH(*const_cast<volatile std::byte*>(store.address(index)) = std::byte{2}, "");
}

}  // namespace
}  // namespace shoal::worker
