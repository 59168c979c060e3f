#include "worker/exec/weight_store.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>

#include "tests/support/child_process.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/ops/normalization.hpp"

namespace shoal::worker {
namespace {

using testing::load;
using testing::spec;

Graph packed_network(double eps = 1e-5) {
  testing::GraphBuilder b;
  const ValueId x = b.conv(b.input("data"), 3, 32, 3);
  const ValueId norm = b.node("BatchNorm", {x, b.constant({32}, 1), b.constant({32}), b.constant({32}), b.constant({32}, 2)},
                              BatchNormAttributes{.eps = eps, .fix_gamma = false}, 3);
  b.output(b.fully_connected(b.global_average(b.activation(norm)), 32, 10));
  return b.graph();
}
const std::vector<TensorSpec> kPackedInputs = {spec("data", {1, 3, 16, 16})};

std::vector<std::byte> bytes_of(const Model& model) {
  const UniqueFd copy = duplicate_fd(model.packed_fd()).value();
  const Segment segment = Segment::map(copy, Segment::Access::kReadOnly).value();
  return {segment.bytes().begin(), segment.bytes().end()};
}

class PackedWeights : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Devices, PackedWeights, ::testing::Values("cpu", "cpu-reference"),
                         [](const auto& info) { return std::string(info.param) == "cpu" ? "Cpu" : "Reference"; });

TEST_P(PackedWeights, AreTheSameBytesForEqualLoads) {
  EXPECT_EQ(bytes_of(*load(packed_network(), kPackedInputs, GetParam())),
            bytes_of(*load(packed_network(), kPackedInputs, GetParam())));
}

TEST_P(PackedWeights, OfAnEqualLoadAreMappedAndUsed) {
  const auto first = load(packed_network(), kPackedInputs, GetParam());
  auto second = Model::load(packed_network(), {.device = GetParam(), .input_sets = {kPackedInputs}},
                            duplicate_fd(first->packed_fd()).value());
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  Context a, b;
  EXPECT_TRUE(
      testing::same_bits(testing::run(**first->program(kPackedInputs), a), testing::run(**(*second)->program(kPackedInputs), b)));
}

TEST_P(PackedWeights, OfAnotherModelAreRefused) {
  const auto first = load(packed_network(), kPackedInputs, GetParam());
  const auto other = Model::load(packed_network(1e-3), {.device = GetParam(), .input_sets = {kPackedInputs}},
                                 duplicate_fd(first->packed_fd()).value());
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
}

/// A sealed segment with these bytes.
UniqueFd packed_as(const std::vector<std::byte>& bytes) {
  UniqueFd fd = create_memfd("test", bytes.size()).value();
  {
    Segment writable = Segment::map(fd, Segment::Access::kReadWrite).value();
    std::memcpy(writable.mutable_bytes().data(), bytes.data(), bytes.size());
  }
  EXPECT_TRUE(seal(fd, Seals::kReadOnly).ok());
  return fd;
}

// As a zygote leaves them that a hostile file has taken over.
TEST_P(PackedWeights, WithAnEntryOfAnotherSizeOrPlaceAreRefused) {
  constexpr std::size_t kCountAt = 12, kTableAt = 40, kRowBytes = 40;
  constexpr std::size_t kKeyAt = 0, kLayoutAt = 8, kTypeAt = 22, kOffsetAt = 24, kSizeAt = 32;  // within a row
  const auto load_with = [](const std::vector<std::byte>& bytes) {
    return Model::load(packed_network(), {.device = GetParam(), .input_sets = {kPackedInputs}}, packed_as(bytes)).status();
  };
  const std::vector<std::byte> packed = bytes_of(*load(packed_network(), kPackedInputs, GetParam()));
  ASSERT_TRUE(load_with(packed).ok());
  std::uint32_t count = 0;
  std::memcpy(&count, packed.data() + kCountAt, sizeof count);
  ASSERT_GT(count, 2u);
  for (std::uint32_t entry = 0; entry < count; ++entry) {
    const auto with = [&](std::size_t field, auto change) {
      std::vector<std::byte> spoiled = packed;
      std::byte* const at = spoiled.data() + kTableAt + entry * kRowBytes + field;
      std::uint64_t number = 0;
      std::memcpy(&number, at, sizeof number);
      number = change(number);
      std::memcpy(at, &number, sizeof number);
      return load_with(spoiled).code();
    };
    SCOPED_TRACE("entry " + std::to_string(entry));
    const auto none = [](std::uint64_t) { return std::uint64_t{0}; };
    const auto less = [](std::uint64_t number) { return number - 4; };
    const auto more = [](std::uint64_t number) { return number + 4; };
    const auto near = [](std::uint64_t number) { return number + 8; };
    const auto outside = [](std::uint64_t number) { return number + (std::uint64_t{1} << 40); };
    EXPECT_EQ(with(kSizeAt, none), StatusCode::kFailedPrecondition);
    EXPECT_EQ(with(kSizeAt, less), StatusCode::kFailedPrecondition);
    EXPECT_EQ(with(kSizeAt, more), StatusCode::kFailedPrecondition);
    EXPECT_EQ(with(kOffsetAt, less), StatusCode::kFailedPrecondition);
    EXPECT_EQ(with(kOffsetAt, outside), StatusCode::kFailedPrecondition);
    EXPECT_EQ(with(kKeyAt, outside), StatusCode::kFailedPrecondition);
    EXPECT_EQ(with(kLayoutAt, outside), StatusCode::kFailedPrecondition);
    const bool has_layout = std::string(GetParam()) == "cpu" && entry == 0;
    EXPECT_TRUE(!has_layout || with(kLayoutAt, near) == StatusCode::kFailedPrecondition) << "a layout that is none";
    const auto another = [](std::uint64_t number) { return number ^ 7; };
    EXPECT_TRUE(!has_layout || with(kTypeAt, another) == StatusCode::kFailedPrecondition) << "not of this type";
  }
}

// Hashing reads all constants. Here that would be a segmentation fault.
TEST(WeightStore, WeightsOfAnotherIdentityAreRefusedBeforeAnyConstantIsRead) {
  const auto first = load(packed_network(), kPackedInputs);
  void* const memory = ::mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Graph unreadable = packed_network();
  for (Value& value : unreadable.values) {
    if (value.constant) value.constant->bytes = {static_cast<const std::byte*>(memory), value.constant->bytes.size()};
  }
  EXPECT_EQ(test::exit_code_of([&] {
              const auto other = Model::load(unreadable, {.threads = 2, .input_sets = {kPackedInputs}},
                                             duplicate_fd(first->packed_fd()).value());
              return other.status().code() == StatusCode::kFailedPrecondition ? 0 : 1;
            }),
            0);
  ::munmap(memory, 1 << 20);
}

TEST(WeightStore, WeightsOfAnotherWidthAreRefused) {
  const auto first = load(packed_network(), kPackedInputs);
  const auto other =
      Model::load(packed_network(), {.threads = 2, .input_sets = {kPackedInputs}}, duplicate_fd(first->packed_fd()).value());
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
              const std::uint32_t head[] = {2, 0x7FFFFFFF};  // far more entries than fit
              std::memcpy(bytes.data() + 8, head, sizeof head);
            }),
            StatusCode::kFailedPrecondition);
}

const WeightForm kBytes{.dtype = DType::kUInt8};

/// 64 bytes of that value.
ConstantChain bytes(const std::string& name, int value) {
  const auto owner = std::make_shared<std::vector<std::byte>>(64, static_cast<std::byte>(value));
  return {.source = NamedConstant{name, {.bytes = *owner, .owner = owner}}};
}

TEST(WeightStore, RefusesAConstantOfAnotherSize) {
  WeightStore store({});
  store.add(bytes("w", 1), kBytes, 60, write_source);
  const Status sealed = store.seal();
  EXPECT_EQ(sealed.code(), StatusCode::kInternal);
  EXPECT_NE(sealed.message().find("'w' of 64 bytes is read as 60"), std::string::npos) << sealed.message();
}

pid_t forked_meanwhile = 0;

TEST(WeightStore, IsSealedAlthoughTheProgramForksMeanwhile) {
  WeightStore store({});
  store.add(bytes("w", 1), kBytes, 64, [](const ConstantChain& chain, const WeightForm& form, std::span<std::byte> dst) {
    forked_meanwhile = test::start_child([] { return ::pause(); });
    return write_source(chain, form, dst);
  });
  const Status sealed = store.seal();
  ::kill(forked_meanwhile, SIGKILL);
  EXPECT_EQ(test::exit_code_of(forked_meanwhile), 128 + SIGKILL);
  EXPECT_TRUE(sealed.ok()) << sealed.to_string();
}

TEST(WeightStore, ForgetsTheLastEntries) {
  WeightStore store({});
  const int kept = store.add(bytes("w", 1), kBytes, 64, write_source);
  const std::size_t count = store.entry_count();
  store.add(bytes("w", 2), {DType::kUInt8, "blocked"}, 64, write_source);
  store.add(bytes("other", 3), kBytes, 64, write_source);
  store.forget_from(count);
  EXPECT_EQ(store.entry_count(), 1u);
  EXPECT_EQ(store.forms_of("w"), std::vector<int>{kept});
  EXPECT_EQ(store.find("other", kBytes), -1);
  const int added = store.add(bytes("other", 4), kBytes, 64, write_source);
  EXPECT_EQ(added, 1);
  ASSERT_TRUE(store.seal().ok());
  EXPECT_EQ(store.address(kept)[0], std::byte{1});
  EXPECT_EQ(store.address(added)[0], std::byte{4});
}

using WeightStoreDeathTest = ::testing::Test;
TEST(WeightStoreDeathTest, AStrayWriteToPackedWeightsIsASegmentationFault) {
  WeightStore store({});
  const int index = store.add(bytes("w", 1), kBytes, 64, write_source);
  ASSERT_TRUE(store.seal().ok());
  EXPECT_EQ(store.address(index)[63], std::byte{1});
  // SIGSEGV; under AddressSanitizer its report and an exit.
  EXPECT_DEATH(*const_cast<volatile std::byte*>(store.address(index)) = std::byte{2}, "");
}

}  // namespace
}  // namespace shoal::worker
