// Kernels of functions of one tensor.
#include <cmath>

#include "worker/exec/cpu/kernels/elementwise.hpp"
#include "worker/exec/cpu/kernels/exponential.hpp"
#include "worker/exec/cpu/kernels/map.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/binary_functions.hpp"
#include "worker/ops/unary_functions.hpp"

namespace shoal::worker::cpu {
namespace {

/// A function that reads and writes numbers of `computed`.
Loop map_one(const TensorType& src, const TensorType& dst, DType computed, BlockFunction function) {
  return map_loop({MapInput::of(src, dst.shape, computed)}, dst, computed, std::move(function));
}

/// The function that make<T>() gives, for elements of type T; it computes numbers of Compute<T>.
template <typename Make>
Loop map_numbers(const TensorType& src, const TensorType& dst, Make make) {
  BlockFunction block;
  dispatch(Numbers(), src.dtype, [&]<typename T>() { block = block_of<Compute<T>, Compute<T>>(make.template operator()<T>()); });
  return map_one(src, dst, computed_type(src.dtype), std::move(block));
}

/// The floating-point type in which functions of reals are computed for elements of a type.
DType real_type(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

/// A function that is computed in float or double.
template <typename Function>
Loop map_reals(const TensorType& src, const TensorType& dst, Function function) {
  const DType computed = real_type(src.dtype);
  BlockFunction block;
  dispatch(Types<float, double>(), computed, [&]<typename F>() { block = block_of<F, F>(function); });
  return map_one(src, dst, computed, std::move(block));
}

template <typename Kind>
Loop make_function(Kind kind, const TensorType& src, const TensorType& dst) {
  BlockFunction function;
  if (!is_of_reals(kind, is_integer(src.dtype))) {
    const DType computed = computed_type(src.dtype);
    dispatch(ComputedNumbers(), computed,
             [&]<typename C>() { function = with_function_of_numbers<C>(kind, [](auto one) { return block_of<C, C>(one); }); });
    return map_one(src, dst, computed, std::move(function));
  }
  const DType computed = is_integer(src.dtype) ? DType::kFloat64 : real_type(src.dtype);
  dispatch(Types<float, double>(), computed,
           [&]<typename F>() { function = with_function_of_reals<F>(kind, [](auto one) { return block_of<F, F>(one); }); });
  return map_one(src, dst, computed, std::move(function));
}

bool is_exponential(LeakyKind kind) { return kind == LeakyKind::kElu || kind == LeakyKind::kSelu; }

/// elu or selu of float32, by vector instructions: std::expm1 is a call for each element.
BlockFunction exponential_unit(const LeakyAttributes& leaky) {
  const bool is_selu = leaky.kind == LeakyKind::kSelu;
  const float above = is_selu ? 1.05070099F : 1.0F, below = is_selu ? 1.05070099F * 1.67326324F : static_cast<float>(leaky.slope);
  return block_of<float, float>([above, below](float x) { return x > 0 ? above * x : below * expm1_of_negative(x); });
}

}  // namespace

Loop make_unary(const Node& node, TensorTypes src, TensorTypes dst) {
  if (src[0].dtype != DType::kBool) return make_function(node.attributes.get<UnaryAttributes>().kind, src[0], dst[0]);
  const TensorType bytes{DType::kUInt8, src[0].shape};
  return make_function(UnaryKind::kLogicalNot, bytes, bytes);
}

Loop make_nan_to_num(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& numbers = node.attributes.get<NanToNumAttributes>();
  return map_numbers(src[0], dst[0], [&]<typename T>() { return nan_to_num_function<T>(numbers); });
}

Loop make_around(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& around = node.attributes.get<AroundAttributes>();
  return map_numbers(src[0], dst[0], [&]<typename T>() { return around_function<T>(around); });
}

Loop make_activation(const Node& node, TensorTypes src, TensorTypes dst) {
  return make_function(node.attributes.get<ActivationAttributes>().kind, src[0], dst[0]);
}

Loop make_leaky(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& leaky = node.attributes.get<LeakyAttributes>();
  const DType computed = real_type(src[0].dtype);
  Loop loop;
  dispatch(Types<float, double>(), computed, [&]<typename F>() {
    if (is_exponential(leaky.kind) && std::is_same_v<F, float>) {
      loop = map_one(src[0], dst[0], computed, exponential_unit(leaky));
      return;
    }
    if (leaky.kind != LeakyKind::kPrelu) {
      loop = map_one(src[0], dst[0], computed, with_leaky_function<F>(leaky, [](auto one) { return block_of<F, F>(one); }));
      return;
    }
    const auto prelu = block_of<F, F, F>([](F x, F slope) { return x > 0 ? x : slope * x; });
    const TensorType slopes{src[1].dtype, slopes_along(src[1].shape, src[0].shape)->bound()};
    loop = map_loop({MapInput::of(src[0], dst[0].shape, computed), MapInput::of(slopes, dst[0].shape, computed)}, dst[0],
                    computed, prelu);
  });
  return loop;
}

Loop make_hard_sigmoid(const Node& node, TensorTypes src, TensorTypes dst) {
  return map_reals(src[0], dst[0],
                   [gate = node.attributes.get<HardSigmoidAttributes>()](auto x) { return hard_sigmoid(gate, x); });
}

Loop make_quadratic(const Node& node, TensorTypes src, TensorTypes dst) {
  return map_reals(src[0], dst[0],
                   [attributes = node.attributes.get<QuadraticAttributes>()](auto x) { return quadratic(attributes, x); });
}

Loop make_clip(const Node& node, TensorTypes src, TensorTypes dst) {
  const auto& clip = node.attributes.get<ClipAttributes>();
  const double min = clip.min, max = clip.max;
  BlockFunction function;
  dispatch(Numbers(), src[0].dtype, [&]<typename T>() {
    using C = Compute<T>;
    const C least = scalar_as<T>(min), most = scalar_as<T>(max);
    // If the element type has both bounds, they need not be compared as doubles. 64-bit integers become rounded doubles.
    if (sizeof(C) < 8 && static_cast<double>(least) == min && static_cast<double>(most) == max) {
      function = block_of<C, C>([=](C x) { return x > most ? most : x < least ? least : x; });  // NaN passes
      return;
    }
    function = block_of<C, C>([=](C x) {
      const double value = static_cast<double>(x);
      return value > max ? most : value < min ? least : x;  // NaN passes
    });
  });
  return map_one(src[0], dst[0], computed_type(src[0].dtype), std::move(function));
}

Loop make_div_sqrt_dim(const Node&, TensorTypes src, TensorTypes dst) {
  const double root = std::sqrt(static_cast<double>(row_length(src[0].shape)));
  return map_reals(src[0], dst[0], [root](auto x) { return x / static_cast<decltype(x)>(root); });
}

Loop clamp_loop(DType type, std::int64_t count, float low, float high) {
  const TensorType numbers{type, Shape{count}};
  return map_one(numbers, numbers, DType::kFloat32, block_of<float, float>([low, high](float x) {
                   const float raised = x < low ? low : x;  // false for NaN
                   return raised > high ? high : raised;
                 }));
}

Loop divide_loop(DType type, std::int64_t count, float divisor) {
  const TensorType numbers{type, Shape{count}};
  return map_one(numbers, numbers, DType::kFloat32, block_of<float, float>([divisor](float x) { return x / divisor; }));
}

}  // namespace shoal::worker::cpu
