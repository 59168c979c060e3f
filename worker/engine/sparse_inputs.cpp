#include "worker/engine/sparse_inputs.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/tensor/spec.hpp"
#include "worker/ops/sparse.hpp"

namespace shoal::worker {
namespace {

constexpr std::int64_t kLeastPadded = 64, kMostPadded = std::int64_t{1} << 40;  // values of a csr input; no tensor has more

class Parts {
 public:
  Parts(ModelConfig& config, Graph& graph, const std::string& name, bool is_csr)
      : config_(config), graph_(graph), name_(name), is_csr_(is_csr) {}

  /// The graph has an input of that name.
  Status take(const std::string& where) {
    const auto place = std::ranges::find_if(graph_.inputs, [&](ValueId id) { return graph_.value(id).name == name_; });
    const ValueId whole = *place;
    TensorSpec spec{name_, graph_.value(whole).dtype, graph_.value(whole).shape};
    if (is_csr_ && spec.shape.rank() == 2) spec.shape[0] = -1;  // the batch of its training; the model takes any
    const auto given = std::ranges::find(config_.inputs, name_, &TensorSpec::name);
    if (given != config_.inputs.end()) {
      spec = *given;
      config_.inputs.erase(given);
    }
    if (spec.dtype == DType::kInvalid) spec.dtype = DType::kFloat32;
    SHOAL_RETURN_IF_ERROR(check_shape(spec.shape, where));
    const auto at = graph_.inputs.erase(place);
    const std::vector<ValueId> parts = is_csr_ ? add_csr(spec, whole) : add_rows(spec, whole);
    graph_.inputs.insert(at, parts.begin(), parts.end());
    graph_.value(whole).shape = Shape::any();
    return {};
  }

 private:
  Status check_shape(const Shape& shape, const std::string& where) const {
    if (!shape.is_known() || shape.rank() == 0)
      return invalid_argument(
          "{}: the shape of the sparse input '{}' is not known: give the dense one in 'inputs', as in "
          "inputs = [{name = \"{}\", shape = [-1, 1000000]}]",
          where, name_, name_);
    if (is_csr_ && (shape.rank() != 2 || shape[1] < 0))
      return invalid_argument("{}: the csr input '{}' needs a shape of two dimensions, the second without -1, and has {}", where,
                              name_, shape.to_string());
    if (!is_csr_ && shape[0] < 0)
      return invalid_argument("{}: the row_sparse input '{}' needs a first dimension without -1, and has shape {}", where, name_,
                              shape.to_string());
    return {};
  }

  /// A part as `inputs` has it, else with this type and shape.
  ValueId add_part(const char* part, TensorSpec spec) {
    spec.name = format("{}.{}", name_, part);
    const ValueId id = graph_.add_value({.name = spec.name, .dtype = spec.dtype});
    const auto given = std::ranges::find(config_.inputs, spec.name, &TensorSpec::name);
    if (given == config_.inputs.end()) {
      config_.inputs.push_back(std::move(spec));
    } else {
      graph_.value(id).dtype = given->dtype;
      if (given->shape == Shape{-1} && given->ranges.empty()) given->ranges = spec.ranges;
    }
    return id;
  }

  /// One element more than there are rows.
  static TensorSpec indptr_of(const TensorSpec& spec) {
    if (spec.shape[0] >= 0) return {.dtype = DType::kInt64, .shape = {spec.shape[0] + 1}};
    DimRange rows = spec.ranges.empty() ? DimRange() : spec.ranges[0];
    rows.lowest = std::max<std::int64_t>(rows.lowest, 1) + 1;
    if (rows.highest < kMaxElements) ++rows.highest;
    return {.dtype = DType::kInt64, .shape = {-1}, .ranges = {rows}};
  }

  std::vector<ValueId> add_csr(const TensorSpec& spec, ValueId whole) {
    const ValueId values = add_part("values", {.dtype = spec.dtype, .shape = {-1}});
    const ValueId indptr = add_part("indptr", indptr_of(spec));
    const ValueId indices = add_part("indices", {.dtype = DType::kInt64, .shape = {-1}});
    const ValueId checked_indptr = graph_.add_value({.name = graph_.value(indptr).name});
    const ValueId checked = graph_.add_value({.name = graph_.value(indices).name});
    const CsrAttributes csr{spec.shape[1]};
    add_nodes({{&ops::kCheckCsr, name_, {}, csr, {values, indptr, indices}, {checked_indptr, checked}, {}},
               {&ops::kCsrToDense, name_, {}, csr, {values, checked_indptr, checked}, {whole}, {}}});
    if (have_open_size(values, indices)) {
      Buckets buckets{.input = graph_.value(values).name, .dim = 0, .with = {graph_.value(indices).name}};
      for (std::int64_t size = kLeastPadded; size <= kMostPadded; size *= 2) buckets.sizes.push_back(size);
      config_.buckets.push_back(std::move(buckets));
    }
    return {values, indptr, indices};
  }

  /// There are as many values as indices: a size that `inputs` states for one of them holds for both.
  bool have_open_size(ValueId values, ValueId indices) {
    const auto shape_of = [&](ValueId part) -> Shape& {
      return std::ranges::find(config_.inputs, graph_.value(part).name, &TensorSpec::name)->shape;
    };
    Shape &of_values = shape_of(values), &of_indices = shape_of(indices);
    if (of_values == Shape{-1}) of_values = of_indices;
    if (of_indices == Shape{-1}) of_indices = of_values;
    return of_values == Shape{-1} && of_indices == Shape{-1};
  }

  std::vector<ValueId> add_rows(const TensorSpec& spec, ValueId whole) {
    TensorSpec stored{.dtype = spec.dtype, .shape = spec.shape, .ranges = spec.ranges};
    stored.shape[0] = -1;
    const ValueId values = add_part("values", std::move(stored));
    const ValueId indices = add_part("indices", {.dtype = DType::kInt64, .shape = {-1}});
    const ValueId checked = graph_.add_value({.name = graph_.value(indices).name});
    const RowsAttributes rows{spec.shape[0]};
    add_nodes({{&ops::kCheckRows, name_, {}, rows, {values, indices}, {checked}, {}},
               {&ops::kRowsToDense, name_, {}, rows, {values, checked}, {whole}, {}}});
    return {values, indices};
  }

  void add_nodes(std::vector<Node> nodes) {
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].outputs) graph_.value(id).producer = static_cast<NodeId>(i);
    }
  }

  ModelConfig& config_;
  Graph& graph_;
  const std::string& name_;
  const bool is_csr_;
};

}  // namespace

Status take_sparse_inputs(ModelConfig& config, Graph& graph, const std::string& where) {
  const auto sparse = config.sparse;
  std::set<std::string> names;
  for (const auto& [name, storage] : sparse) names.insert(name);
  SHOAL_RETURN_IF_ERROR(check_input_names(format("{}: 'sparse' is wrong: the model", where), graph.input_specs(), {}, names));
  for (const auto& [name, storage] : sparse) SHOAL_RETURN_IF_ERROR(Parts(config, graph, name, storage == "csr").take(where));
  return {};
}

std::string describe_dense_input(const std::string& name, const std::string& storage) {
  return format(
      "input '{}' is {} in the graph, and dense in requests; sparse = {{} = \"{}\"} in model.toml takes its parts instead", name,
      storage, name, storage);
}

}  // namespace shoal::worker
