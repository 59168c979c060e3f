// Boxes, regions and pictures in another size: the kernels on one thread and on two give the bits of the oracle kernels, whatever
// the numbers are. What they suppress is checked against all pairs of boxes.
#include <algorithm>
#include <cmath>

#include "tests/unit/worker/exec/cpu/kernels/as_oracle.hpp"
#include "worker/ops/boxes.hpp"
#include "worker/ops/boxes_functions.hpp"
#include "worker/ops/detection.hpp"
#include "worker/ops/proposal.hpp"
#include "worker/ops/regions.hpp"
#include "worker/ops/resize_functions.hpp"

namespace shoal::worker {
namespace {

using testing::as_oracle;
using testing::odd_numbers;
using testing::types_of;

/// Numbers in [low, high), some of them equal.
Tensor numbers_in(DType dtype, const Shape& shape, double low, double high, std::uint64_t seed = 1) {
  Tensor tensor = Tensor::create(dtype, shape).value();
  TensorView view = tensor.view();
  dispatch(Floats(), dtype, [&]<typename T>() {
    for (std::int64_t i = 0, end = view.element_count(); i < end; ++i) {
      const std::uint64_t noise = (static_cast<std::uint64_t>(i) + seed * 977) * 0x9E3779B97F4A7C15u;
      elements<T>(view)[i] = from_float<T>(low + (high - low) * static_cast<double>(noise >> 52) / 4096);
    }
  });
  return tensor;
}

/// Rows [class of 7, score, box].
Tensor rows_of_boxes(DType dtype, std::int64_t batch, std::int64_t count) {
  Tensor rows = numbers_in(dtype, {batch, count, 6}, 0, 1);
  TensorView view = rows.view();
  dispatch(Floats(), dtype, [&]<typename T>() {
    T* row = elements<T>(view);
    for (std::int64_t i = 0; i < batch * count; ++i, row += 6) {
      using F = Compute<T>;
      row[0] = to_element<T>(static_cast<F>(i * 31 % 8 - 1));
      for (int k = 2; k < 4; ++k) row[k + 2] = to_element<T>(static_cast<F>(row[k]) + static_cast<F>(row[k + 2]) / 4);
    }
  });
  return rows;
}

TEST(DetectionKernels, SuppressBoxesAsTheOracleKernelDoes) {
  for (const DType dtype : types_of(Floats())) {
    for (const auto format : {BoxFormat::kCorner, BoxFormat::kCenter}) {
      for (const std::int64_t topk : {-1, 0, 1, 400, 100000}) {
        const BoxNmsAttributes nms{.overlap = 0.3F, .topk = topk, .class_id = 0, .in_format = format};
        EXPECT_TRUE(as_oracle({&ops::kBoxNms, nms, {rows_of_boxes(dtype, 2, 3000)}}));
        EXPECT_TRUE(as_oracle({&ops::kBoxNms, nms, {odd_numbers(dtype, {2, 5000, 7})}}));
      }
    }
    const BoxNmsAttributes nms{.overlap = 0.3F, .across_classes = true, .out_format = BoxFormat::kCenter};
    EXPECT_TRUE(as_oracle({&ops::kBoxNms, nms, {rows_of_boxes(dtype, 1, 3000)}}));
    EXPECT_TRUE(as_oracle({&ops::kBoxNms, nms, {odd_numbers(dtype, {9, 6})}}));
  }
}

// All pairs, as the definition says: the best first, each that no kept one of its class suppresses.
TEST(DetectionKernels, KeepWhatNoBetterBoxSuppresses) {
  constexpr std::int64_t kCount = 700;
  const Tensor data = rows_of_boxes(DType::kFloat32, 1, kCount);
  const float* const rows = data.values<float>().data();
  std::vector<const float*> order, kept;
  for (std::int64_t i = 0; i < kCount; ++i) order.push_back(rows + 6 * i);
  std::ranges::stable_sort(order, std::ranges::greater(), [](const float* row) { return row[1]; });
  const auto sized_of = [](const float* row) { return sized(box_from(row + 2), BoxFormat::kCorner); };
  for (const float* row : order) {
    const auto suppresses = [&](const float* other) {
      const float both = intersection_of(sized_of(row), sized_of(other));
      return row[0] == other[0] && both / (sized_of(row).area + sized_of(other).area - both) > 0.3F;
    };
    if (row[0] != -1 && row[1] > 0 && std::ranges::none_of(kept, suppresses)) kept.push_back(row);  // -1: the background
  }
  ASSERT_GT(kept.size(), 50u);
  ASSERT_LT(kept.size(), 600u);
  Tensor result = Tensor::create(DType::kFloat32, data.shape()).value();
  const Node node{.op = &ops::kBoxNms, .name = "nms", .attributes = BoxNmsAttributes{.overlap = 0.3F, .class_id = 0}};
  TensorView to = result.view();
  ASSERT_TRUE(run_oracle(node, std::array{data.view()}, {&to, 1}).ok());
  for (std::size_t i = 0; i < static_cast<std::size_t>(kCount); ++i) {
    for (std::size_t k = 0; k < 6; ++k)
      ASSERT_EQ(result.values<float>()[6 * i + k], i < kept.size() ? kept[i][k] : -1) << "row " << i;
  }
}

TEST(DetectionKernels, ComputeWithBoxesAsTheOracleKernelDoes) {
  for (const DType dtype : types_of(Floats())) {
    for (const auto format : {BoxFormat::kCorner, BoxFormat::kCenter}) {
      EXPECT_TRUE(
          as_oracle({&ops::kBoxIou, BoxIouAttributes{format}, {odd_numbers(dtype, {300, 4}), odd_numbers(dtype, {99, 4})}}));
      const BoxDecodeAttributes decode{.factor_x = 0.1F, .factor_width = 0.2F, .clip = 4, .format = format};
      EXPECT_TRUE(as_oracle({&ops::kBoxDecode, decode, {odd_numbers(dtype, {3, 700, 4}), odd_numbers(dtype, {1, 700, 4})}}));
    }
    const Shape places{2, 400};
    EXPECT_TRUE(as_oracle({&ops::kBoxEncode,
                           {},
                           {odd_numbers(dtype, places), odd_numbers(dtype, places, 2), numbers_in(dtype, {2, 400, 4}, 0, 9),
                            odd_numbers(dtype, {2, 5, 4}), numbers_in(dtype, {4}, 0, 1), numbers_in(dtype, {4}, 1, 2)},
                           2}));
    for (const bool ascending : {false, true}) {
      for (const std::int64_t topk : {-1, 3}) {
        const BipartiteMatchingAttributes matching{.threshold = 0.25F, .topk = topk, .ascending = ascending};
        EXPECT_TRUE(as_oracle({&ops::kBipartiteMatching, matching, {odd_numbers(dtype, {2, 300, 60})}, 2}));
        EXPECT_TRUE(as_oracle({&ops::kBipartiteMatching, matching, {numbers_in(dtype, {70, 400}, 0, 1)}, 2}));
      }
    }
  }
}

TEST(DetectionKernels, DetectAsTheOracleKernelDoes) {
  constexpr std::int64_t kAnchors = 3000;
  for (const DType dtype : types_of(Floats())) {
    const Tensor anchors = numbers_in(dtype, {1, kAnchors, 4}, 0, 1, 3);
    for (const std::int64_t topk : {-1, 400}) {
      for (const float overlap : {0.45F, -1.0F}) {
        for (const bool across : {false, true}) {
          const MultiBoxDetectionAttributes detection{.overlap = overlap, .topk = topk, .across_classes = across};
          EXPECT_TRUE(
              as_oracle({&ops::kMultiBoxDetection,
                         detection,
                         {numbers_in(dtype, {2, 5, kAnchors}, 0, 1), numbers_in(dtype, {2, 4 * kAnchors}, -2, 2), anchors}}));
        }
      }
    }
    EXPECT_TRUE(as_oracle(
        {&ops::kMultiBoxDetection,
         MultiBoxDetectionAttributes{.clip = false},
         {odd_numbers(dtype, {2, 5, kAnchors}), odd_numbers(dtype, {2, 4 * kAnchors}), odd_numbers(dtype, {1, kAnchors, 4})}}));
    const MultiBoxPriorAttributes prior{.sizes = {0.2F, 0.5F}, .ratios = {1, 2, 0.5F}};
    EXPECT_TRUE(as_oracle({&ops::kMultiBoxPrior, prior, {Tensor::create(dtype, {2, 3, 19, 23}).value()}}));
  }
}

TEST(DetectionKernels, ProposeAsTheOracleKernelDoes) {
  for (const DType dtype : types_of(Floats())) {
    for (const bool adds : {false, true}) {
      const ProposalAttributes proposal{
          .scales = {8, 16}, .ratios = {0.5F, 1, 2}, .most_sorted = 900, .count = 100, .adds_offsets = adds};
      const Tensor pictures = numbers_in(dtype, {2, 3}, 200, 224);
      EXPECT_TRUE(as_oracle({&ops::kProposal,
                             proposal,
                             {numbers_in(dtype, {2, 12, 14, 14}, 0, 1), numbers_in(dtype, {2, 24, 14, 14}, -1, 1), pictures},
                             2}));
      EXPECT_TRUE(as_oracle(
          {&ops::kProposal, proposal, {odd_numbers(dtype, {2, 12, 14, 14}), odd_numbers(dtype, {2, 24, 14, 14}), pictures}, 2}));
    }
  }
}

/// Regions of any numbers, of maps -1 to 2.
Tensor odd_regions(DType dtype, std::int64_t count) {
  Tensor regions = odd_numbers(dtype, {count, 5}, 7);
  TensorView view = regions.view();
  dispatch(Floats(), dtype, [&]<typename T>() {
    for (std::int64_t i = 0; i < count; ++i) {
      if (i % 8 != 0) elements<T>(view)[5 * i] = from_float<T>(static_cast<double>(i % 4 - 1));
    }
  });
  return regions;
}

TEST(DetectionKernels, ReadRegionsAsTheOracleKernelDoes) {
  for (const DType dtype : types_of(Floats())) {
    for (const Tensor& regions : {odd_regions(dtype, 90), numbers_in(dtype, {40, 5}, -1, 30), numbers_in(dtype, {1, 5}, 0, 1)}) {
      const Tensor maps = odd_numbers(dtype, {2, 72, 19, 23});
      EXPECT_TRUE(as_oracle({&ops::kRoiPooling, RoiPoolingAttributes{3, 4, 0.5F}, {maps, regions}}));
      for (const bool aligned : {false, true}) {
        for (const std::int64_t samples : {-1, 2}) {
          const RoiAlignAttributes align{.height = 3, .width = 2, .scale = 0.5F, .samples = samples, .aligned = aligned};
          EXPECT_TRUE(as_oracle({&ops::kRoiAlign, align, {maps, regions}}));
          RoiAlignAttributes by_position = align;
          by_position.by_position = true;
          EXPECT_TRUE(as_oracle({&ops::kRoiAlign, by_position, {maps, regions}}));
        }
      }
    }
  }
}

// Of maps and results that no machine has, a file may still tell.
TEST(DetectionKernels, CountMemoryForRegionsOfAnySizeWithoutAnOverflow) {
  constexpr std::int64_t kPooled = 1 << 20, kHeight = std::int64_t{1} << 43;
  const Node node{.op = &ops::kRoiAlign, .name = "r", .attributes = RoiAlignAttributes{.height = kPooled, .width = 1}};
  const cpu::TensorType src[] = {{DType::kFloat32, Shape{1, 1, kHeight, 1}}, {DType::kFloat32, Shape{1, 5}}};
  const cpu::TensorType dst[] = {{DType::kFloat32, Shape{1, 1, kPooled, 1}}};
  const std::size_t bytes = cpu::find_kernel(&ops::kRoiAlign)->scratch_bytes(node, std::span(src), std::span(dst));
  EXPECT_GT(bytes, std::size_t{kHeight});
  EXPECT_LT(bytes, std::size_t{kHeight} * 1000);
}

TEST(DetectionKernels, ResizePicturesAsTheOracleKernelDoes) {
  for (const DType dtype : types_of(Numbers())) {
    const Tensor data = odd_numbers(dtype, {2, 3, 17, 40}), last = odd_numbers(dtype, {2, 17, 40, 3});
    for (const ResizeKind kind : {ResizeKind::kRepeat, ResizeKind::kLinearCorners, ResizeKind::kLinearHalfPixel,
                                  ResizeKind::kOpenCvNearest, ResizeKind::kOpenCvLinear}) {
      const bool takes =
          TypeSet(Floats()).holds(dtype) || !is_linear(kind) || (dtype == DType::kUInt8 && kind == ResizeKind::kOpenCvLinear);
      if (!takes) continue;
      for (const std::int64_t times : {1, 3}) {
        const ResizeAttributes larger{.kind = kind, .height = 17 * times, .width = 40 * times * times};
        EXPECT_TRUE(as_oracle({&ops::kResize, larger, {data}}));
        ResizeAttributes channels_last = larger;
        channels_last.channels_last = true;
        EXPECT_TRUE(as_oracle({&ops::kResize, channels_last, {last}}));
      }
      if (kind == ResizeKind::kRepeat) continue;
      EXPECT_TRUE(as_oracle({&ops::kResize, ResizeAttributes{.kind = kind, .height = 5, .width = 1}, {data}}));
      EXPECT_TRUE(as_oracle({&ops::kResize, ResizeAttributes{.kind = kind, .height = 1, .width = 700}, {data}}));
    }
  }
}

}  // namespace
}  // namespace shoal::worker
