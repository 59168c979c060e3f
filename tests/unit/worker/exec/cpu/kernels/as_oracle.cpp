#include "tests/unit/worker/exec/cpu/kernels/as_oracle.hpp"

#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "worker/ops/elements.hpp"

namespace shoal::worker::testing {
namespace {

std::uint64_t hash(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed * 0xD1342543DE82EF95u + (i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

template <typename T>
T number(std::uint64_t seed, std::uint64_t i) {
  const std::uint64_t noise = hash(seed, i);
  if constexpr (std::is_integral_v<T>) {
    constexpr T kOdd[] = {0, 1, static_cast<T>(-1), 2, std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max(), 7};
    if (noise % 8 == 0) return kOdd[noise / 8 % std::size(kOdd)];
    return static_cast<T>(noise % 3 == 0 ? noise >> 32 : noise / 8 % 11);  // any bits, or small
  } else {
    using Limits = std::numeric_limits<double>;
    constexpr double kOdd[] = {0,
                               -0.0,
                               1,
                               -1,
                               0.5,
                               -0.5,
                               1.5,
                               2.5,
                               -2.5,
                               3e-8,
                               -3e-8,
                               1e-42,
                               6e4,
                               -7e4,
                               3e38,
                               -3e38,
                               2.2e9,
                               -2.2e9,
                               1e19,
                               Limits::infinity(),
                               -Limits::infinity(),
                               Limits::quiet_NaN()};
    if (noise % 8 == 0) return from_float<T>(kOdd[noise / 8 % std::size(kOdd)]);
    const double unit = static_cast<double>(noise >> 12) * 0x1p-51 - 1;
    constexpr double kScales[] = {1, 1, 6, 100, 1e5};
    return from_float<T>(unit * kScales[noise / 8 % std::size(kScales)]);
  }
}

/// The outputs of a node as infer() says.
std::vector<Tensor> make_outputs(const Node& node, const Case& given) {
  std::vector<TypedValue> src, dst(static_cast<std::size_t>(given.outputs));
  for (const Tensor& tensor : given.src)
    src.push_back({.name = "x", .dtype = tensor.dtype(), .shape = SymbolicShape(tensor.shape())});
  const Status inferred = node.op->infer(node, src, dst);
  if (!inferred.ok()) throw Error(inferred);
  std::vector<Tensor> outputs;
  for (const TypedValue& value : dst) outputs.push_back(Tensor::create(value.dtype, value.shape.bound()).value());
  return outputs;
}

bool is_same(const TensorView& got, const TensorView& want, std::int64_t i, double tolerance) {
  const std::size_t bytes = dtype_size_bytes(want.dtype), at = static_cast<std::size_t>(i) * bytes;
  if (std::memcmp(got.data + at, want.data + at, bytes) == 0) return true;
  bool same = false;
  dispatch(Floats(), want.dtype, [&]<typename T>() {
    const auto a = static_cast<double>(elements<T>(got)[i]), b = static_cast<double>(elements<T>(want)[i]);
    same = (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
    if (tolerance == 0 && a == b) same = false;  // 0 and -0
  });
  return same;
}

std::string text_of(const TensorView& view, std::int64_t i) {
  std::string text = "?";
  dispatch(AnyTypes(), view.dtype, [&]<typename T>() {
    if constexpr (std::is_same_v<T, bool>)
      text = std::to_string(static_cast<int>(elements<std::uint8_t>(view)[i]));
    else if constexpr (std::is_integral_v<T>)
      text = std::to_string(elements<T>(view)[i]);
    else
      text = format("{}", static_cast<double>(elements<T>(view)[i]));
  });
  return text;
}

class Comparison {
 public:
  Comparison(const Case& given, double tolerance)
      : given_(given),
        node_{.op = given.op, .name = "tested", .attributes = given.attributes},
        want_(make_outputs(node_, given)),
        tolerance_(tolerance) {
    std::vector<TensorView> src, dst;
    for (const Tensor& tensor : given.src) {
      src.push_back(tensor.view());
      src_types_.push_back({tensor.dtype(), tensor.shape()});
    }
    for (Tensor& tensor : want_) {
      dst.push_back(tensor.view());
      dst_types_.push_back({tensor.dtype(), tensor.shape()});
    }
    const Status status = given.op->oracle(node_, src, dst);
    if (!status.ok()) throw Error(status);
  }

  /// in_place: the number of the input in whose memory the result lies; -1: in its own.
  ::testing::AssertionResult run(int threads, int in_place) {
    const Kernel* const kernel = cpu::find_kernel(given_.op);
    if (kernel == nullptr) return ::testing::AssertionFailure() << "there is no kernel of " << given_.op->name;
    const cpu::Loop loop = kernel->make(node_, src_types_, dst_types_);
    if (!loop) return ::testing::AssertionFailure() << "the kernel declines";
    std::vector<Tensor> got = make_outputs(node_, given_);
    std::vector<std::byte*> operands;
    for (std::size_t i = 0; i < given_.src.size(); ++i) {
      const TensorView from = given_.src[i].view();
      if (in_place >= 0 && i == static_cast<std::size_t>(in_place)) {
        std::memcpy(got[0].view().data, from.data, from.size_bytes());
        operands.push_back(got[0].view().data);
      } else {
        operands.push_back(from.data);
      }
    }
    for (Tensor& tensor : got) {
      if (in_place < 0) std::memset(tensor.view().data, 0x5a, tensor.size_bytes());
      operands.push_back(tensor.view().data);
    }
    std::vector<std::byte> scratch(kernel->scratch_bytes ? kernel->scratch_bytes(node_, src_types_, dst_types_) : 0);
    if (kernel->scratch_bytes) operands.push_back(scratch.data());
    const int before = ::omp_get_max_threads();
    ::omp_set_num_threads(threads);
    loop(operands);
    ::omp_set_num_threads(before);
    for (std::size_t k = 0; k < got.size(); ++k) {
      const TensorView a = got[k].view(), b = want_[k].view();
      for (std::int64_t i = 0, end = b.element_count(); i < end; ++i) {
        if (is_same(a, b, i, tolerance_)) continue;
        return ::testing::AssertionFailure()
               << node_.op->name << " {" << node_.attributes.to_text() << "} of " << dtype_name(given_.src[0].dtype()) << " "
               << given_.src[0].shape().to_string() << ", " << threads << " threads: element " << i << " of output " << k
               << " is " << text_of(a, i) << ", and the oracle's is " << text_of(b, i);
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  using Kernel = cpu::Kernel;
  const Case& given_;
  Node node_;
  std::vector<Tensor> want_;
  double tolerance_;
  std::vector<cpu::TensorType> src_types_, dst_types_;
};

}  // namespace

Tensor odd_numbers(DType dtype, const Shape& shape, std::uint64_t seed) {
  Tensor tensor = Tensor::create(dtype, shape).value();
  TensorView view = tensor.view();
  dispatch(AnyTypes(), dtype, [&]<typename T>() {
    for (std::int64_t i = 0, end = view.element_count(); i < end; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      if constexpr (std::is_same_v<T, bool>)
        elements<std::uint8_t>(view)[i] = static_cast<std::uint8_t>(hash(seed, at) % 4);  // from outside it may be any byte
      else
        elements<T>(view)[i] = number<T>(seed, at);
    }
  });
  return tensor;
}

::testing::AssertionResult as_oracle(const Case& given, double tolerance) {
  Comparison comparison(given, tolerance);
  for (const int threads : {1, 2}) {
    if (auto same = comparison.run(threads, -1); !same) return same;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult as_oracle_in_place(const Case& given, std::size_t input) {
  return Comparison(given, 0).run(2, static_cast<int>(input));
}

}  // namespace shoal::worker::testing
