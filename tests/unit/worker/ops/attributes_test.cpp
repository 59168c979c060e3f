// Attributes: what is made of the list of a struct's fields.
#include "worker/graph/attributes.hpp"

#include <gtest/gtest.h>

#include "worker/ops/movement.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

std::string bytes_of(const Attributes& attributes) {
  std::string bytes;
  attributes.append_bytes(bytes);
  return bytes;
}

TEST(Attributes, AreEqualIfAllFieldsAre) {
  const PoolingAttributes window{.kernel = {2, 2}, .stride = {1, 1}, .pad = {0, 0}};
  PoolingAttributes other = window;
  EXPECT_EQ(Attributes(window), Attributes(other));
  other.legacy = true;  // the last field
  EXPECT_NE(Attributes(window), Attributes(other));
  EXPECT_NE(Attributes(window), Attributes());
  EXPECT_EQ(Attributes(), Attributes());
}

// The elements of a list may not count as those of the next one, and a 0 not as no number.
TEST(Attributes, HaveBytesThatTellFieldsApart) {
  EXPECT_NE(bytes_of(PoolingAttributes{.kernel = {1, 1}, .stride = {1}}),
            bytes_of(PoolingAttributes{.kernel = {1}, .stride = {1, 1}}));
  const auto slice = [](std::optional<std::int64_t> begin, std::optional<std::int64_t> end) {
    return bytes_of(SliceAttributes{.ranges = {{.axis = 1, .begin = begin, .end = end}}});
  };
  EXPECT_NE(slice(0, {}), slice({}, 0));
  EXPECT_NE(slice(0, {}), slice({}, {}));
  EXPECT_EQ(slice(3, 4), slice(3, 4));
}

TEST(Attributes, OfAnotherStructAreNoneOfThisOne) {
  const Attributes attributes = TransposeAttributes{.axes = {1, 0}};
  EXPECT_EQ(attributes.get_if<SwapAxesAttributes>(), nullptr);
  EXPECT_EQ(attributes.get<TransposeAttributes>().axes, (Dims{1, 0}));
  EXPECT_EQ(Attributes().get_if<TransposeAttributes>(), nullptr);
  EXPECT_DEATH((void)attributes.get<SwapAxesAttributes>(), "");
}

TEST(Attributes, AreWrittenForPeople) {
  EXPECT_EQ(Attributes(TransposeAttributes{.axes = {1, 0}}).to_text(), "axes=(1, 0)");
  EXPECT_EQ(Attributes(SliceAttributes{.ranges = {{.axis = 1, .end = 3}}, .clips = false}).to_text(),
            "ranges=({axis=1, begin=none, end=3, step=1}), clips=false, may_be_empty=false");
  EXPECT_EQ(
      Attributes(SoftmaxAttributes{.kind = SoftmaxKind::kLogSoftmax, .temperature = 0.5, .dtype = DType::kFloat16}).to_text(),
      "kind=log_softmax, axis=-1, flatten_rest=false, least_rank=1, temperature=0.5, use_length=false, dtype=float16");
}

TEST(Attributes, HaveFieldsForAPage) {
  const auto fields = kSchema<SplitAttributes>.fields();
  ASSERT_EQ(fields.size(), 6U);
  EXPECT_EQ(fields[0].name, "axis");
  EXPECT_EQ(fields[0].type, "integer");
  EXPECT_EQ(fields[0].missing, "1");
  EXPECT_EQ(fields[2].type, "bool");
  EXPECT_EQ(kSchema<PadAttributes>.fields()[0].type, "constant \\| edge \\| reflect \\| symmetric");
  EXPECT_EQ(kSchema<SliceAttributes>.fields()[0].type, "list of (axis, begin, end, step)");
}

}  // namespace
}  // namespace shoal::worker
