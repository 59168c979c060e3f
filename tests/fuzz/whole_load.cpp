#include "tests/fuzz/whole_load.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "shm/base/check.hpp"
#include "shm/base/format.hpp"
#include "shm/base/unique_fd.hpp"
#include "tests/fuzz/distance.hpp"
#include "tests/fuzz/random_bodies.hpp"
#include "tests/fuzz/random_symbol.hpp"
#include "tests/fuzz/sensitive_nodes.hpp"
#include "tests/support/tensor_values.hpp"
#include "tests/unit/worker/import/mxnet/array_files.hpp"
#include "worker/exec/model.hpp"
#include "worker/exec/owned_outputs.hpp"
#include "worker/graph/operators.hpp"
#include "worker/import/importer.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"
#include "worker/import/mxnet/mxnet_types.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/attention.hpp"
#include "worker/ops/cast.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/fully_connected.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"
#include "worker/ops/products.hpp"
#include "worker/ops/quantization.hpp"
#include "worker/ops/unary.hpp"
#include "worker/passes/infer.hpp"

namespace shoal::fuzz {
namespace {

using namespace shoal::worker;
using shoal::testing::as_doubles;

constexpr ImportLimits kLimits{.memory_bytes = std::uint64_t{16} << 20};
constexpr double kMostBytes = 4 << 20;  // of all tensors of a graph together
constexpr double kMostWork = 4 << 20;   // multiplications and the like of one run: the plain loops take some 100 ms for them
constexpr double kTolerance = 1e-4;  // of the largest number: folded BatchNorms and sums in other orders; the golden tests' own
constexpr double kMostSlack = 64;    // so many times the distance from float32 to float64 may the devices lie apart
constexpr double kLargeAngle = 1e3;
constexpr double kNearlyInfinite = std::numeric_limits<float>::max() / (1 << 20);
constexpr double kLooseTolerance = 0.1;           // of the largest number, for graphs that do not run in float64
constexpr std::size_t kSmallCacheBytes = 1 << 8;  // of a core: then the batches of such small graphs run image by image, too

/// A file without a name, whose contents change with each input.
class ScratchFile {
 public:
  explicit ScratchFile(const char* label) : fd_(::memfd_create(label, MFD_CLOEXEC)) { SHOAL_CHECK(fd_.get() >= 0); }
  void write(std::string_view bytes) const {
    SHOAL_CHECK(::ftruncate(fd_.get(), 0) == 0);
    SHOAL_CHECK(::pwrite(fd_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  UniqueFd fd_;
};

/// What an input of the fuzzer begins with.
struct Settings {
  bool is_text = false;        ///< the rest is a symbol file; else what random_symbol() makes one of
  bool fuses = true;           ///< ModelOptions::fuse
  bool weights_given = false;  ///< with each request; else they lie in the parameter file
  bool second_batch = false;   ///< a program for one more image is compiled on demand
  bool by_image = false;       ///< batches run image by image as if they were larger than a core's cache
  bool with_bodies = false;    ///< parts of the graph are bodies
  bool without_steps = false;  ///< only graphs whose numbers can be compared
  bool is_hostile = false;     ///< some numbers of graphs with indices, lengths or boxes are none that a model would give
  std::uint32_t seed = 0;      ///< of weights and data
  TensorSpec data{"data", DType::kFloat32, {}};

  explicit Settings(ByteSource& bytes) {
    const std::uint8_t flags = bytes.next();
    is_text = (flags & LoadFlags::kIsText) != 0;
    fuses = (flags & LoadFlags::kUnfused) == 0;
    weights_given = (flags & LoadFlags::kWeightsGiven) != 0;
    second_batch = (flags & LoadFlags::kSecondBatch) != 0;
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kInt32,
                                DType::kUInt8,   DType::kInt64,   DType::kInt8,    DType::kFloat32};
    if ((flags & LoadFlags::kOtherType) != 0) data.dtype = kTypes[flags >> 5];
    seed = bytes.next();
    by_image = (seed & LoadFlags::kWholeBatches) == 0;
    without_steps = (seed & LoadFlags::kSteps) == 0;
    with_bodies = (seed & LoadFlags::kBodies) != 0;
    is_hostile = !without_steps && (seed & LoadFlags::kHostile) != 0;
    std::vector<std::int64_t> dims(1 + bytes.below(5));
    for (std::int64_t& dim : dims) dim = 1 + static_cast<std::int64_t>(bytes.below(bytes.one_in(4) ? 40 : 8));
    data.shape = Shape(dims);
  }
};

/// Small numbers, so that sums of many products are exact in float32 and may be made in any order.
double number(std::uint32_t& state) {
  state = state * 1664525 + 1013904223;
  constexpr double kNumbers[] = {1, 0.5, -1, 2, 0, -0.5, 1.5, 3};
  return kNumbers[state >> 29];
}

void store(std::byte* to, DType dtype, double value) {
  const Status stored = dispatch<Numbers>(Node(), dtype, [&]<typename T>() {
    const T element = convert<T>(std::is_unsigned_v<T> ? std::abs(value) : value);
    std::memcpy(to, &element, sizeof(T));
    return Status();
  });
  SHOAL_CHECK(stored.ok());
}

/// MXNet's number of the type; nothing for those that random graphs do not have.
std::optional<std::int32_t> type_flag(DType dtype) {
  constexpr std::int32_t kCount = 7;  // float32 to int64
  for (std::int32_t flag = 0; flag < kCount; ++flag) {
    if (dtype_of_flag(flag) == dtype) return flag;
  }
  return std::nullopt;
}

/// What is stored where a model expects an index, a length, a score or a box.
enum class NumberKind { kAny, kPositive, kHostile };
double hostile_number(std::uint32_t& state) {
  constexpr double kNumbers[] = {std::numeric_limits<double>::quiet_NaN(),
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(),
                                 2147483647,
                                 -2147483648.0,
                                 -1,
                                 4294967296.0,
                                 1e30};
  number(state);
  return kNumbers[state >> 29];
}

std::vector<std::byte> numbers(DType dtype, const Shape& shape, std::uint32_t seed, NumberKind kind = NumberKind::kAny) {
  const std::size_t size = dtype_size_bytes(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.element_count()) * size);
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    double any = number(seed);
    if (kind == NumberKind::kHostile && (seed >> 16) % 4 == 0) any = hostile_number(seed);
    store(bytes.data() + at, dtype, kind == NumberKind::kPositive ? std::abs(any) + 0.5 : any);
  }
  return bytes;
}

double bytes_of(const Value& value) {
  return static_cast<double>(value.shape.element_count()) * static_cast<double>(dtype_size_bytes(value.dtype));
}

/// How often the plain loops visit an element for one of the result.
double visits_per_element(const Graph& graph, const Node& node) {
  if (node.inputs.empty()) return 1;
  const Shape& src = graph.value(node.inputs[0]).shape;
  const auto elements = [&](const Shape& shape) { return static_cast<double>(shape.element_count()); };
  if (const auto* conv = node.attributes.get_if<ConvolutionAttributes>())
    return elements(graph.value(node.inputs[1]).shape) / static_cast<double>(conv->num_filter);
  if (node.attributes.get_if<FullyConnectedAttributes>()) return static_cast<double>(graph.value(node.inputs[1]).shape[1]);
  if (const auto* lrn = node.attributes.get_if<LrnAttributes>()) return std::min<double>(static_cast<double>(lrn->nsize), 40);
  if (node.attributes.get_if<PoolingAttributes>() || node.attributes.get_if<AdaptivePoolingAttributes>())
    return elements(src) / static_cast<double>(src[0]);
  if (node.op == &ops::kMatMul || node.op == &ops::kDot) {
    const double results = elements(graph.value(node.outputs[0]).shape);  // sums are as long as this or shorter:
    return std::sqrt(elements(src) * elements(graph.value(node.inputs[1]).shape) / std::max(results, 1.0));
  }
  if (node.attributes.get_if<AttentionAttributes>()) return static_cast<double>(std::ranges::max(src));
  return 1;
}

/// The graph is one whose loading and running take little time and memory.
bool is_small(Graph graph, std::span<const TensorSpec> inputs) {
  if (!infer(graph, inputs).ok()) return false;
  double bytes = 0, work = 0;
  for (const Value& value : graph.values) bytes += bytes_of(value);
  for (const Node& node : graph.nodes) {
    double elements = 0;
    for (const ValueId id : node.outputs) elements += static_cast<double>(graph.value(id).shape.element_count());
    for (const ValueId id : node.inputs) work += static_cast<double>(graph.value(id).shape.element_count());
    work += elements * visits_per_element(graph, node);
  }
  return bytes <= kMostBytes && work <= kMostWork;
}

struct Inputs {
  std::vector<TensorSpec> specs;
  std::uint32_t seed = 0;
  NumberKind kind = NumberKind::kAny;
};

/// One model, run; nothing when that is refused.
std::optional<Tensors> answer(Model& model, const Inputs& given) {
  model.enter_thread();
  const auto program = model.program(given.specs);
  if (!program.ok()) return std::nullopt;
  std::vector<Tensor> inputs;
  std::vector<TensorView> src;
  std::uint32_t seed = given.seed;
  for (const TensorSpec& spec : (*program)->inputs()) {
    inputs.push_back(Tensor::create(spec.dtype, spec.shape).value());
    const auto bytes = numbers(spec.dtype, spec.shape, ++seed, given.kind);
    std::memcpy(inputs.back().view().data, bytes.data(), bytes.size());
    src.push_back(inputs.back().view());
  }
  auto outputs = OwnedOutputs::make((*program)->outputs()).value();
  Context context;
  context.sink = &outputs;
  if (!(*program)->run(context, src, outputs.views()).ok()) return std::nullopt;
  return std::move(outputs).take();
}

/// Numbers of graphs that cannot be compared may be hostile: both devices must survive them.
NumberKind kind_for(const Settings& settings, const Graph& graph) {
  return settings.is_hostile && std::ranges::any_of(graph.nodes, has_steps) ? NumberKind::kHostile : NumberKind::kAny;
}

struct Load {
  Settings settings;
  std::vector<TensorSpec> specs;
  const ScratchFile &symbol, &params;

  /// Without bodies.
  Result<Graph> graph() const {
    SHOAL_ASSIGN_OR_RETURN(Import import, read_model({symbol.path(), params.path()}, {}, kLimits));
    return std::move(import.graph);
  }

  Result<std::unique_ptr<Model>> model(const std::string& device, const std::vector<TensorSpec>& inputs) const {
    SHOAL_ASSIGN_OR_RETURN(Graph imported, graph());
    if (settings.with_bodies) add_bodies(imported, specs, settings.seed);
    ModelOptions options{.device = device, .input_sets = {inputs}, .fuse = settings.fuses};
    if (settings.by_image) options.core_cache_bytes = kSmallCacheBytes;
    return Model::load(std::move(imported), std::move(options));
  }

  Load unfused() const {
    Load copy = *this;
    copy.settings.fuses = false;
    return copy;
  }
  Load without_bodies() const {
    Load copy = *this;
    copy.settings.with_bodies = false;
    return copy;
  }
};

/// How far rounding alone moves the answers: from float32 to float64. Nothing when the graph does not compute in float64.
std::optional<Tensors> in_double(const Load& load, Inputs inputs) {
  for (TensorSpec& spec : inputs.specs) {
    if (spec.dtype == DType::kFloat32 || spec.dtype == DType::kFloat16) spec.dtype = DType::kFloat64;
  }
  const auto model = load.model("cpu-reference", inputs.specs);
  return model.ok() ? answer(**model, inputs) : std::nullopt;
}

std::string name_of_value(ValueId id) { return "value" + std::to_string(id); }

/// What every node of the graph answers on the reference device; nothing if not all of its values can be outputs.
Tensors values_of(const Load& load, const Inputs& inputs) {
  Result<Graph> graph = load.graph();
  if (!graph.ok()) return {};
  for (const Node& node : graph->nodes) {
    for (const ValueId id : node.outputs) graph->outputs.push_back({name_of_value(id), id});
  }
  const auto model = Model::load(std::move(*graph), {.device = "cpu-reference", .input_sets = {inputs.specs}});
  return (model.ok() ? answer(**model, inputs) : std::nullopt).value_or(Tensors());
}

/// Whether one of the numbers that these nodes computed is such a one. `values` is of values_of().
bool any_of(const Tensors& values, std::span<const Node* const> nodes, bool (*is_such)(double)) {
  return std::ranges::any_of(nodes, [&](const Node* node) {
    return std::ranges::any_of(node->outputs, [&](ValueId id) {
      const auto found = std::ranges::find(values, name_of_value(id), &NamedTensor::name);
      return found != values.end() && std::ranges::any_of(as_doubles(found->tensor.view()), is_such);
    });
  });
}

/// What is wrong with the answers; empty: nothing.
std::string compare(const Load& load, const Inputs& inputs, const Tensors& got, const Tensors& want, LoadOutcome& outcome) {
  std::optional<Tensors> exact, values;
  const auto graph = load.graph();
  for (std::size_t i = 0; i < want.size(); ++i) {
    const TensorView &got_view = got[i].tensor.view(), &want_view = want[i].tensor.view();
    const std::vector<const Node*> nodes = nodes_behind(*graph, i);
    const auto has = [&](bool (*is_such)(const Node&)) {
      return std::ranges::any_of(nodes, [&](const Node* node) { return is_such(*node); });
    };
    if (got_view.dtype == want_view.dtype && got_view.shape != want_view.shape && has(counts_equal_numbers)) {
      ++outcome.loosely_compared;
      continue;
    }
    if (got_view.dtype != want_view.dtype || got_view.shape != want_view.shape)
      return format("output {} is {} {} instead of {} {}", i, dtype_name(got_view.dtype), got_view.shape.to_string(),
                    dtype_name(want_view.dtype), want_view.shape.to_string());
    const auto a = as_doubles(got_view), b = as_doubles(want_view);
    const bool few_nan = has(has_border);
    const Distance distance(a, b, few_nan);
    if (distance.apart <= kTolerance * distance.largest) continue;
    if (!exact) exact = in_double(load, inputs);
    const bool has_exact = exact && (*exact)[i].tensor.view().shape == want_view.shape;
    const auto c = has_exact ? as_doubles((*exact)[i].tensor.view()) : std::vector(b.size(), std::nan(""));
    const Distance rounding(b, c, few_nan);
    if (has_exact && distance.apart <= kTolerance * rounding.largest + kMostSlack * rounding.apart) continue;
    if (!values) values = values_of(load, inputs);
    const auto computed = [&](bool (*is_such)(double)) { return any_of(*values, nodes, is_such); };
    const bool is_loose = !has_exact || has(has_infinite_slope) ||
                          (has(is_periodic) && computed([](double x) { return std::abs(x) > kLargeAngle; }));
    if (is_loose && distance.apart <= kLooseTolerance * distance.largest) {
      ++outcome.loosely_compared;
      continue;
    }
    // oneDNN loses the sign of zero, and a sum that is zero on one device is nearly zero on the other: 1/0 has either sign, and
    // 1/sqrt(0) may be NaN instead. Numbers near the largest one (max pooling gives the lowest for a window of nothing but
    // padding) swallow the others of a sum in one order and cancel in another, or overflow to an infinity or NaN.
    const auto is_infinite = [](double x) { return std::abs(x) > kNearlyInfinite; };
    if (computed(is_infinite) || std::ranges::any_of(a, is_infinite)) continue;
    if (load.settings.fuses && computed([](double x) { return std::isnan(x); })) {  // a fused relu makes a number of NaN
      const Load plain = load.unfused();
      const auto model = plain.model("cpu", inputs.specs);
      const auto again = model.ok() ? answer(**model, inputs) : std::nullopt;
      return again ? compare(plain, inputs, *again, want, outcome) : "it does not run without fusion";
    }
    std::string text = format("output {} '{}' {}: cpu and cpu-reference differ: {} apart, largest {}, rounding {}\n", i,
                              want[i].name, want_view.shape.to_string(), distance.apart, distance.largest, rounding.apart);
    for (std::size_t k = 0; k < std::min<std::size_t>(b.size(), 16); ++k)
      text += format("  [{}] cpu {} reference {} float64 {}\n", k, a[k], b[k], c[k]);
    return text;
  }
  return "";
}

/// The rank of the first output for this data; nothing when the graph is refused.
std::optional<int> rank_of(const std::string& text, const Settings& settings) {
  auto import = import_mxnet_symbol({"random-symbol.json", std::as_bytes(std::span(text)), nullptr}, kLimits);
  if (!import.ok() || !infer_parameters(import->graph, std::span(&settings.data, 1)).ok()) return std::nullopt;
  if (settings.without_steps && std::ranges::any_of(import->graph.nodes, has_steps)) return std::nullopt;
  return import->graph.value(import->graph.outputs.front().value).shape.rank();
}

/// Writes the parameter file: everything but the data, of the shapes that follow from it.
bool write_parameters(const Settings& settings, const std::string& text, const ScratchFile& params,
                      std::vector<TensorSpec>& inputs) {
  const ForeignFile file{"load-symbol.json", std::as_bytes(std::span(text)), nullptr};
  auto import = import_mxnet_symbol(file, kLimits);
  if (!import.ok()) return false;
  Graph& graph = import->graph;
  if (!infer_parameters(graph, std::span(&settings.data, 1)).ok()) return false;
  std::vector<std::string> records, names;
  double bytes = 0;
  std::uint32_t seed = settings.seed;
  const NumberKind kind = kind_for(settings, graph);  // variances are positive: a negative one makes only NaN
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    const bool is_auxiliary = import->auxiliaries.contains(value.name);
    const auto flag = type_flag(value.dtype);
    if (!flag || (bytes += bytes_of(value)) > kMostBytes) return false;
    if (value.name == settings.data.name || (settings.weights_given && !is_auxiliary)) {
      inputs.push_back({value.name, value.dtype, value.shape});
      continue;
    }
    const auto contents = numbers(value.dtype, value.shape, ++seed, is_auxiliary ? NumberKind::kPositive : kind);
    const bool is_sparse = !is_auxiliary && value.dtype == DType::kFloat32 && value.shape.rank() == 2 && seed % 4 == 0;
    if (is_sparse) {
      std::vector<float> elements(contents.size() / sizeof(float));
      std::memcpy(elements.data(), contents.data(), contents.size());
      records.push_back(test::sparse_record(seed % 8 == 0 ? 1 : 2, value.shape[0], value.shape[1], elements));
      names.push_back("arg:" + value.name);
      continue;
    }
    records.push_back(test::record(test::Era::kV2, {value.shape.begin(), value.shape.end()}, *flag,
                                   {reinterpret_cast<const char*>(contents.data()), contents.size()}));
    names.push_back((is_auxiliary ? "aux:" : "arg:") + value.name);
  }
  params.write(test::list(records, names));
  return true;
}

/// Bodies change no bit of what the oracle kernels answer. Returns what is wrong.
std::string compare_without_bodies(const Load& load, const Inputs& inputs, const Tensors& got) {
  const auto model = load.without_bodies().model("cpu-reference", load.specs);
  const auto want = model.ok() ? answer(**model, inputs) : std::nullopt;
  if (!want) return "it does not run without bodies";
  for (std::size_t i = 0; i < want->size(); ++i) {
    const TensorView &a = got[i].tensor.view(), &b = (*want)[i].tensor.view();
    if (a.dtype != b.dtype || a.shape != b.shape || !std::ranges::equal(a.bytes(), b.bytes()))
      return format("output {} '{}' of cpu-reference is another one with bodies", i, got[i].name);
  }
  return "";
}

/// Loads the graph on both devices, runs it and compares. Returns what is wrong.
std::string check(const Load& load, LoadOutcome& outcome) {
  const auto reference = load.model("cpu-reference", load.specs), cpu = load.model("cpu", load.specs);
  if (reference.ok() != cpu.ok())  // every graph runs on both devices
    return "one device loads it and the other does not: " + (reference.ok() ? cpu : reference).status().to_string();
  if (!reference.ok()) {
    const bool has_wrong_bodies = load.settings.with_bodies && load.without_bodies().model("cpu-reference", load.specs).ok();
    return has_wrong_bodies ? "it does not load with bodies: " + reference.status().to_string() : "";
  }
  const auto graph = load.graph();
  const bool is_comparable = std::ranges::none_of(graph->nodes, has_steps);
  for (int round = 0; round < (load.settings.second_batch ? 2 : 1); ++round) {
    Inputs inputs{load.specs, load.settings.seed + 7, kind_for(load.settings, *graph)};
    if (round == 1) {
      for (TensorSpec& spec : inputs.specs) {
        if (spec.name == load.settings.data.name) ++spec.shape[0];
      }
      if (!is_small(*graph, inputs.specs)) return "";
    }
    const auto want = answer(**reference, inputs), got = answer(**cpu, inputs);
    if (want.has_value() != got.has_value()) return "one device runs it and the other does not";
    outcome.ran |= want.has_value();
    outcome.compared |= want && is_comparable;
    if (want && load.settings.with_bodies) {
      if (std::string wrong = compare_without_bodies(load, inputs, *want); !wrong.empty()) return wrong;
    }
    if (!want || !is_comparable) continue;
    if (std::string wrong = compare(load, inputs, *got, *want, outcome); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

LoadOutcome check_whole_load(ByteSource& bytes, std::string_view only) {
  static const ScratchFile symbol("symbol"), params("params");
  const Settings settings(bytes);
  LoadOutcome outcome;
  outcome.symbol = std::string(reinterpret_cast<const char*>(bytes.rest().data()), bytes.rest().size());
  const auto judge = [&](const std::string& text) { return rank_of(text, settings); };
  if (!settings.is_text) outcome.symbol = random_symbol(bytes, settings.data.shape.rank(), judge, only);
  outcome.data = settings.data;
  std::vector<TensorSpec> specs;
  if (!write_parameters(settings, outcome.symbol, params, specs)) return outcome;
  symbol.write(outcome.symbol);
  const Load load{settings, specs, symbol, params};
  if (auto graph = load.graph(); graph.ok() && is_small(*graph, specs)) {
    outcome.wrong = check(load, outcome);
    if (outcome.ran && settings.with_bodies) outcome.bodies = add_bodies(*graph, specs, settings.seed);
  }
  return outcome;
}

}  // namespace shoal::fuzz
