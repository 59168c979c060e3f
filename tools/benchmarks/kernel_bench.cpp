#include "tools/benchmarks/kernel_bench.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/exec/model.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/reduce.hpp"
#include "worker/ops/selection.hpp"
#include "worker/ops/softmax.hpp"
#include "worker/ops/unary.hpp"

namespace shoal::bench {
namespace {

using namespace worker;  // NOLINT(google-build-using-namespace): operators and their attributes

struct Case {
  const char* name;
  const Operator* op;
  Attributes attributes;
  std::vector<Shape> inputs;
  std::vector<DType> types;
  DType first = DType::kInvalid;  ///< of the first input, if it is another one
};

std::vector<Case> all_cases() {
  const std::vector<DType> floats = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
  const std::vector<DType> numbers = {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kInt64, DType::kUInt8};
  const std::vector<DType> halves = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  const Shape picture{1, 64, 112, 112}, row{1, 64, 1, 1};
  return {
      {"add", &ops::kBinary, BinaryAttributes{BinaryKind::kAdd}, {picture, picture}, numbers},
      {"maximum, broadcast", &ops::kBinary, BinaryAttributes{BinaryKind::kMaximum, true}, {picture, row}, numbers},
      {"less", &ops::kBinary, BinaryAttributes{BinaryKind::kLesser}, {picture, picture}, numbers},
      {"x / 3", &ops::kScalar, ScalarAttributes{BinaryKind::kDiv, 3}, {picture}, numbers},
      {"relu", &ops::kActivation, ActivationAttributes{ActivationKind::kRelu}, {picture}, numbers},
      {"exp", &ops::kUnary, UnaryAttributes{UnaryKind::kExp}, {picture}, floats},
      {"clip", &ops::kClip, ClipAttributes{0, 6}, {picture}, numbers},
      {"to float32", &ops::kCast, CastAttributes{DType::kFloat32}, {picture}, {DType::kFloat16, DType::kInt32, DType::kUInt8}},
      {"to float16", &ops::kCast, CastAttributes{DType::kFloat16}, {picture}, {DType::kFloat32, DType::kInt32}},
      {"where", &ops::kWhere, WhereAttributes{}, {picture, picture, picture}, numbers, DType::kBool},
      {"sum of rows", &ops::kReduce, ReduceAttributes{ReduceKind::kSum, {3}}, {picture}, numbers},
      {"sum over channels", &ops::kReduce, ReduceAttributes{ReduceKind::kSum, {1}}, {picture}, numbers},
      {"maximum of all", &ops::kReduce, ReduceAttributes{ReduceKind::kMax, {}}, {picture}, numbers},
      {"to channels last", &ops::kTranspose, TransposeAttributes{{0, 2, 3, 1}}, {picture}, numbers},
      {"backwards", &ops::kSlice, SliceAttributes{{{.axis = 3, .step = -1}}}, {picture}, numbers},
      {"reflect", &ops::kPad, PadAttributes{PadMode::kReflect, {0, 0, 0, 0, 3, 3, 3, 3}}, {picture}, numbers},
      {"concatenate", &ops::kConcat, ConcatAttributes{3}, {picture, picture}, numbers},
      {"softmax", &ops::kSoftmax, SoftmaxAttributes{}, {{800, 1000}}, halves},
      {"layer norm", &ops::kLayerNorm, LayerNormAttributes{}, {{1024, 768}, {768}, {768}}, floats},
      {"instance norm", &ops::kGroupNorm, GroupNormAttributes{.groups = 0}, {picture, {64}, {64}}, floats},
      {"gelu", &ops::kLeakyRelu, LeakyAttributes{LeakyKind::kGelu}, {{1024, 768}}, floats},
      {"attention scores", &ops::kAttentionScores, AttentionAttributes{12, true}, {{384, 1, 2304}}, halves},
      {"attention values", &ops::kAttentionValues, AttentionAttributes{12, true}, {{384, 1, 2304}, {12, 384, 384}}, halves},
      {"product", &ops::kMatMul, MatMulAttributes{.transpose_b = true}, {{12, 384, 64}, {12, 384, 64}}, halves},
  };
}

/// A model of one node, with its tensors.
class OneNode {
 public:
  static Result<OneNode> load(const Case& given, DType dtype, const std::string& device, int threads) {
    Graph graph;
    Node node{.op = given.op, .name = given.name, .attributes = given.attributes};
    std::vector<TensorSpec> specs;
    for (const Shape& shape : given.inputs) {
      const DType type = specs.empty() && given.first != DType::kInvalid ? given.first : dtype;
      specs.push_back({"in" + std::to_string(specs.size()), type, shape});
      graph.inputs.push_back(graph.add_value({.name = specs.back().name, .dtype = type}));
    }
    node.inputs = graph.inputs;
    for (int i = 0; i < given.op->outputs.least; ++i) node.outputs.push_back(graph.add_value({.name = "out", .producer = 0}));
    graph.outputs = {{"out", node.outputs[0]}};
    graph.nodes.push_back(std::move(node));
    OneNode loaded;
    SHOAL_ASSIGN_OR_RETURN(loaded.model_,
                           worker::Model::load(std::move(graph), {.device = device, .threads = threads, .input_sets = {specs}}));
    SHOAL_ASSIGN_OR_RETURN(loaded.program_, loaded.model_->program(specs));
    for (const TensorSpec& spec : specs) {
      SHOAL_ASSIGN_OR_RETURN(const Tensor tensor, Tensor::create(spec.dtype, spec.shape));
      loaded.add(tensor, loaded.src_);
      for (std::size_t i = 0; spec.dtype == DType::kBool && i < tensor.size_bytes(); ++i)
        loaded.src_.back().data[i] = static_cast<std::byte>(i * 7 % 3 == 0);
    }
    SHOAL_ASSIGN_OR_RETURN(const Tensor result,
                           Tensor::create(loaded.program_->outputs()[0].dtype, loaded.program_->outputs()[0].shape));
    loaded.add(result, loaded.dst_);
    return loaded;
  }

  /// Milliseconds of processor time of one run.
  Result<double> run() {
    model_->enter_thread();
    const std::clock_t start = std::clock();
    SHOAL_RETURN_IF_ERROR(program_->run(context_, src_, dst_));
    return static_cast<double>(std::clock() - start) * 1e3 / CLOCKS_PER_SEC;
  }
  std::string implementation() const { return program_->steps().front().implementation; }

 private:
  void add(const Tensor& tensor, std::vector<TensorView>& views) {
    tensors_.push_back(tensor);
    views.push_back(tensors_.back().view());
  }

  std::unique_ptr<worker::Model> model_;
  std::shared_ptr<const Program> program_;
  Context context_;
  std::vector<Tensor> tensors_;
  std::vector<TensorView> src_, dst_;
};

Result<nlohmann::json> compare(const Case& given, DType dtype, const KernelBenchOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(OneNode fast, OneNode::load(given, dtype, "cpu", options.threads));
  SHOAL_ASSIGN_OR_RETURN(OneNode oracle, OneNode::load(given, dtype, "cpu-reference", options.threads));
  double fast_ms = std::numeric_limits<double>::infinity(), oracle_ms = fast_ms;
  for (int round = 0; round < options.rounds; ++round) {
    SHOAL_ASSIGN_OR_RETURN(const double a, fast.run());
    SHOAL_ASSIGN_OR_RETURN(const double b, oracle.run());
    fast_ms = std::min(fast_ms, a);
    oracle_ms = std::min(oracle_ms, b);
  }
  return nlohmann::json{{"case", given.name},          {"operator", given.op->name}, {"type", dtype_name(dtype)},
                        {"by", fast.implementation()}, {"cpu_ms", fast_ms},          {"oracle_ms", oracle_ms},
                        {"ratio", oracle_ms / fast_ms}};
}

}  // namespace

Status bench_kernels(const KernelBenchOptions& options) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Case& each : all_cases()) {
    for (const DType dtype : each.types) {
      SHOAL_ASSIGN_OR_RETURN(nlohmann::json row, compare(each, dtype, options));
      rows.push_back(std::move(row));
    }
  }
  std::printf("%s\n", nlohmann::json{{"rows", std::move(rows)}}.dump(1).c_str());
  return {};
}

}  // namespace shoal::bench
