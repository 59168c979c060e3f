#include "worker/exec/model.hpp"

#include <algorithm>
#include <cstring>

#include "shm/base/cache_directory.hpp"
#include "shm/base/errors.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/graph_hash.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/padding.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/exec/program_builder.hpp"
#include "worker/exec/program_cache.hpp"
#include "worker/exec/tuning.hpp"
#include "worker/passes/constant_folding.hpp"
#include "worker/passes/infer.hpp"
#include "worker/passes/sparse_forms.hpp"

namespace shoal::worker {
namespace {

using InputSet = std::vector<TensorSpec>;

constexpr const char* kChoicesKey = "choices";  // an entry of the packed weights
WeightForm choices_form() { return {.dtype = DType::kUInt8, .layout = "text"}; }
constexpr int kTuningVersion = 3;  // increase it when nodes are numbered, variants are named, or errors are limited differently

// The key of a Program in the cache: dtype and shape of every input, in the model's order.
std::string key_of(std::span<const TensorSpec> inputs) {
  std::string key;
  for (const auto& input : inputs) key += format("{} {};", dtype_name(input.dtype), input.shape.to_string());
  return key;
}

bool is_open(const Shape& shape) {
  return !shape.is_known() || std::any_of(shape.begin(), shape.end(), [](std::int64_t dim) { return dim < 0; });
}

class ModelOnDevice : public Model {
 public:
  ModelOnDevice(Graph graph, ModelOptions options, ProgramBuilder builder)
      : graph_(std::move(graph)),
        builder_(std::move(builder)),
        options_(std::move(options)),
        input_sets_(std::move(options_.input_sets)),
        input_specs_(graph_.input_specs()),
        ignored_inputs_(graph_.ignored_inputs),
        cache_(options_.cache_bytes) {
    for (const auto& output : graph_.outputs) output_names_.push_back(output.name);
  }

  Status load(UniqueFd packed) {
    builder_.enter_thread();
    SHOAL_RETURN_IF_ERROR(complete_input_sets());
    std::string identity = format("build {}; {}; {}", build_id(), builder_.identity(), key_of(input_sets_.front()));
    if (packed) {
      SHOAL_ASSIGN_OR_RETURN(weights_, WeightStore::open(identity, std::move(packed)));
    }
    SHOAL_RETURN_IF_ERROR(check_nesting(graph_));
    use_sparse_forms(graph_);
    name_scopes(graph_);
    move_constants_into_bodies(graph_);
    SHOAL_RETURN_IF_ERROR(infer(graph_, input_sets_.front()));
    SHOAL_RETURN_IF_ERROR(fold_with_notes());
    const std::uint64_t model_hash = hash_graph(graph_);
    if (weights_) {
      SHOAL_RETURN_IF_ERROR(weights_->check_model(model_hash));
    } else {
      weights_ = std::make_shared<WeightStore>(WeightIdentity{model_hash, std::move(identity)});
    }
    const Status chosen = choose_algorithms(model_hash);
    note_precision();
    options_.tuning_progress = {};  // these may refer to what lives as long as the load only
    options_.measure_elsewhere = {};
    SHOAL_RETURN_IF_ERROR(chosen);
    // The first set decides the layouts. All programs are prepared before sealing, so that everything they read is packed.
    for (const auto& set : input_sets_) {
      SHOAL_ASSIGN_OR_RETURN(auto program, program_for(set, notes_));
      pinned_.push_back(std::move(program));
    }
    if (!weights_->is_sealed()) SHOAL_RETURN_IF_ERROR(weights_->seal());
    SHOAL_RETURN_IF_ERROR(release_constants());
    for (std::size_t i = 0; i < pinned_.size(); ++i) cache_.pin(key_of(input_sets_[i]), pinned_[i]);
    return {};
  }

  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) override {
    SHOAL_ASSIGN_OR_RETURN(const InputSet wanted, in_model_order(inputs));
    const InputSet set = padding_.pad(wanted);
    const auto compile = [&]() -> Result<std::shared_ptr<const Program>> {
      SHOAL_RETURN_IF_ERROR(check_dtypes(set));
      std::vector<std::string> ignored;
      SHOAL_ASSIGN_OR_RETURN(auto program, program_for(set, ignored));
      return std::shared_ptr<const Program>(std::move(program));
    };
    SHOAL_ASSIGN_OR_RETURN(const auto found, cache_.get(key_of(set), compile));
    return padding_.fit(planned(found), wanted);
  }
  Result<std::shared_ptr<const Program>> find_program(std::span<const TensorSpec> inputs) override {
    SHOAL_ASSIGN_OR_RETURN(const InputSet set, in_model_order(inputs));
    const auto found = cache_.find(key_of(padding_.pad(set)));
    return found ? padding_.fit(planned(found), set) : std::shared_ptr<const Program>();
  }

  bool has_devices() const override { return builder_.has_devices(); }
  Status activate(Context& context) const override {
    for (const auto& program : pinned_) SHOAL_RETURN_IF_ERROR(program->activate(context));
    return {};
  }
  const std::vector<std::string>& notes() const override { return notes_; }
  int threads() const override { return builder_.host().threads(); }
  void enter_thread() const override { builder_.enter_thread(); }
  const std::vector<std::int64_t>& joined_sizes() const override { return joined_sizes_; }
  int packed_fd() const override { return weights_->fd(); }
  std::size_t packed_bytes() const override { return weights_->size_bytes(); }
  ProgramCounters program_counters() const override { return cache_.counters(); }
  TuningInfo tuning() const override { return tuning_; }
  std::vector<TensorSpec> input_specs() const override { return input_specs_; }
  const std::vector<std::string>& output_names() const override { return output_names_; }
  const std::vector<std::string>& ignored_inputs() const override { return ignored_inputs_; }

 private:
  // What is made dense at load is gone from the graph afterwards; the rest is made dense in each run.
  Status fold_with_notes() {
    const std::vector<std::string> dense = describe_dense_forms(graph_);
    SHOAL_RETURN_IF_ERROR(fold_constants(graph_));
    const std::vector<std::string> in_runs = describe_dense_forms(graph_);
    for (const std::string& form : dense)
      notes_.push_back(form + (std::ranges::count(in_runs, form) > 0 ? ", in each run" : ", at load"));
    return {};
  }

  // The input sets for which programs are compiled now.
  Status complete_input_sets() {
    if (input_sets_.empty()) input_sets_.push_back(input_specs_);
    for (auto& set : input_sets_) {
      SHOAL_ASSIGN_OR_RETURN(set, in_model_order(set));
      SHOAL_RETURN_IF_ERROR(check_dtypes(set));
    }
    SHOAL_ASSIGN_OR_RETURN(padding_, Padding::make(options_.buckets, graph_, options_.declared_inputs, input_sets_.front()));
    pad_input_sets();
    return add_joined_sets();
  }

  // No lane waits for the program of a batch, and all workers share it.
  Status add_joined_sets() {
    if (options_.max_batch <= 1) return {};
    SHOAL_RETURN_IF_ERROR(check_joinable(graph_, options_.declared_inputs, input_sets_.front()));
    joined_sizes_ = shoal::worker::joined_sizes(options_.max_batch, options_.buckets);
    for (const std::int64_t size : joined_sizes_) {
      InputSet set = input_sets_.front();
      for (TensorSpec& input : set) input.shape[0] = size;
      if (std::ranges::find(input_sets_, set) == input_sets_.end()) input_sets_.push_back(std::move(set));
    }
    return {};
  }

  Result<InputSet> in_model_order(std::span<const TensorSpec> given) const {
    const auto is_named = [](const std::string& name) { return [&name](const auto& spec) { return spec.name == name; }; };
    InputSet set;
    for (const auto& wanted : input_specs_) {
      const auto found = std::find_if(given.begin(), given.end(), is_named(wanted.name));
      if (found == given.end()) return invalid_argument("input '{}' of the model is not given", wanted.name);
      if (is_open(found->shape))
        return invalid_argument("input '{}' has the open shape {}: a program needs sizes", wanted.name, found->shape.to_string());
      set.push_back({wanted.name, found->dtype, found->shape});
    }
    for (const auto& spec : given) {
      const bool known = std::any_of(set.begin(), set.end(), is_named(spec.name)) ||
                         std::find(ignored_inputs_.begin(), ignored_inputs_.end(), spec.name) != ignored_inputs_.end();
      if (!known) return invalid_argument("the model has no input '{}'", spec.name);
    }
    return set;
  }

  // All programs in the cache are PlannedPrograms, because this class alone fills it.
  static std::shared_ptr<const PlannedProgram> planned(const std::shared_ptr<const Program>& program) {
    return std::static_pointer_cast<const PlannedProgram>(program);
  }

  // Only padded sizes are ever run.
  void pad_input_sets() {
    std::vector<InputSet> padded;
    for (const InputSet& set : input_sets_) {
      InputSet larger = padding_.pad(set);
      if (std::ranges::find(padded, larger) == padded.end()) padded.push_back(std::move(larger));
    }
    input_sets_ = std::move(padded);
  }

  // Constants are converted and packed for the types of the first set. After that the originals are gone.
  Status check_dtypes(const InputSet& set) const {
    const InputSet& first = input_sets_.front();
    for (std::size_t i = 0; i < set.size(); ++i) {
      if (set[i].dtype == first[i].dtype) continue;
      return invalid_argument("input '{}' is {}, the model was loaded for {}", set[i].name, dtype_name(set[i].dtype),
                              dtype_name(first[i].dtype));
    }
    return {};
  }

  Result<std::shared_ptr<const PlannedProgram>> program_for(const InputSet& set, std::vector<std::string>& notes) {
    Graph graph = graph_;
    SHOAL_RETURN_IF_ERROR(infer_naming_shapes(graph, set));
    return builder_.build(graph, weights_, choices_, notes);
  }

  // Packed weights carry the choices that they were packed for. So all processes that share them agree if the record changes.
  Status choose_algorithms(std::uint64_t model_hash) {
    if (weights_->is_sealed()) {
      const int index = weights_->find(kChoicesKey, choices_form());
      if (index < 0) return {};
      const auto* text = reinterpret_cast<const char*>(weights_->address(index));
      SHOAL_ASSIGN_OR_RETURN(choices_, Choices::parse({text, weights_->entry(index).size_bytes}));
      tuning_ = {.source = TuningInfo::Source::kPacked, .layout = choices_.layout};
      return {};
    }
    if (options_.choices) {
      choices_ = *options_.choices;
    } else {
      tune(model_hash);
    }
    if (choices_.empty()) return {};
    const auto text = std::make_shared<const std::string>(choices_.to_text());
    const Constant bytes{.bytes = std::as_bytes(std::span(*text)), .owner = text};
    weights_->add({.source = NamedConstant{kChoicesKey, bytes}}, choices_form(), text->size(), write_source);
    return {};
  }

  // If no record can be kept, nothing is measured: otherwise each process would choose for itself, and answers would differ.
  void tune(std::uint64_t model_hash) {
    auto directory = options_.cache_directory.empty() ? default_cache_directory() : options_.cache_directory;
    if (options_.tuning_budget.count() == 0 || directory.empty() || builder_.host().variants().empty()) return;
    const std::string limit = options_.precision == Precision::kAuto ? format("max_error {}; ", options_.max_error) : "";
    const TuningRecord record(directory / "tuning",
                              format("shoal {}; {}; {}; {}model {}; inputs {}", kTuningVersion, describe_machine(),
                                     builder_.identity(), limit, model_hash, key_of(input_sets_.front())));
    auto recorded = record.read();
    if (recorded.ok()) {
      choices_ = *std::move(recorded);
      tuning_ = {.source = TuningInfo::Source::kRecord, .layout = choices_.layout};
      return;
    }
    if (recorded.status().code() != StatusCode::kNotFound) add_problem(recorded.status());
    tuning_.source = TuningInfo::Source::kFailed;
    if (const Status possible = record.prepare(); !possible.ok()) return add_problem(possible);
    const auto start = std::chrono::steady_clock::now();
    const auto measured = options_.measure_elsewhere ? measured_elsewhere(record) : measure();
    tuning_.measured_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (!measured.ok() && options_.measure_elsewhere) return add_problem(measured.status());  // the pool may measure yet
    // A measurement that failed, or found nothing to choose, is recorded, too. Otherwise every start would repeat it.
    auto standing = record.write(measured.ok() ? *measured : Choices());
    if (!standing.ok()) return add_problem(standing.status());
    choices_ = *std::move(standing);
    tuning_.layout = choices_.layout;
    if (measured.ok()) tuning_.source = TuningInfo::Source::kMeasured;
    if (!measured.ok()) add_problem(measured.status().with_context(format("to measure again remove {}", record.file().string())));
  }

  void note_precision() {
    tuning_.precision = builder_.host().precision_of(choices_);
    tuning_.bf16_error = choices_.bf16_error;
    const bool is_open = options_.precision == Precision::kAuto && !builder_.host().variants().empty();
    if (is_open && choices_.empty() && tuning_.source == TuningInfo::Source::kOff)
      add_problem(
          failed_precondition("precision auto: nothing could be measured, so the model runs in f32; set tuning_ms, and "
                              "a directory for records (SHOAL_CACHE_DIR)"));
  }

  Result<Choices> measure() const {
    SHOAL_ASSIGN_OR_RETURN(const Graph graph, builder_.host_graph(graph_));
    return measure_choices(graph, builder_.host(), options_.tuning_budget, options_.tuning_progress,
                           {.max_error = options_.max_error, .inputs = options_.error_inputs});
  }

  Result<Choices> measured_elsewhere(const TuningRecord& record) const {
    // Whoever measures may have left a record and still refuse the model, for a reason that is none here.
    const Status said = options_.measure_elsewhere();
    auto recorded = record.read();
    if (!recorded.ok() && !said.ok()) return said;
    return recorded;
  }

  void add_problem(const Status& problem) {
    if (!tuning_.problem.empty()) tuning_.problem += "; ";
    tuning_.problem += problem.message();
  }

  // From here on the constants are only in the packed weights: the parameter file is unmapped, copies made by passes are freed.
  Status release_constants() {
    Status status;
    for_each_graph(graph_, [&](Graph& graph) {
      for (std::size_t id = 0; id < graph.values.size() && status.ok(); ++id) {
        if (auto& constant = graph.values[id].constant)
          status = release(*constant, constant_key(graph, static_cast<ValueId>(id)), graph.values[id].dtype);
      }
    });
    return status;
  }

  Status release(Constant& constant, const std::string& key, DType dtype) {
    const std::size_t size_bytes = constant.bytes.size();
    constant.bytes = {};
    constant.owner = nullptr;
    const int index = weights_->find(key, {.dtype = dtype});
    if (index < 0) return {};
    SHOAL_RETURN_IF_ERROR(weights_->check_size(index, size_bytes));
    constant.bytes = {weights_->address(index), weights_->entry(index).size_bytes};
    constant.owner = weights_->segment();
    return {};
  }

  Graph graph_;  ///< inferred for the first set; later ones work on copies
  ProgramBuilder builder_;
  ModelOptions options_;
  std::vector<InputSet> input_sets_;
  Choices choices_;
  TuningInfo tuning_;
  Padding padding_;
  std::vector<std::int64_t> joined_sizes_;
  std::vector<TensorSpec> input_specs_;
  std::vector<std::string> output_names_, ignored_inputs_;
  std::shared_ptr<WeightStore> weights_;                       ///< sealed once loaded
  std::vector<std::shared_ptr<const PlannedProgram>> pinned_;  ///< compiled by load()
  std::vector<std::string> notes_;
  ProgramCache cache_;
};

}  // namespace

std::string to_text(const TuningInfo& tuning) {
  const std::string layout = tuning.layout.empty() ? "default" : tuning.layout;
  const std::string error = tuning.bf16_error ? format(", error of bf16 {}", *tuning.bf16_error) : "";
  switch (tuning.source) {
    case TuningInfo::Source::kOff:
      return "off";
    case TuningInfo::Source::kPacked:
      return "packed " + layout + error;
    case TuningInfo::Source::kRecord:
      return "record " + layout + error;
    case TuningInfo::Source::kMeasured:
      return format("measured {} in {} ms{}", layout, static_cast<int>(tuning.measured_ms), error);
    case TuningInfo::Source::kFailed:
      return format("failed: {}", tuning.problem);
  }
  return "";
}

Result<std::unique_ptr<Model>> Model::load(Graph graph, ModelOptions options, UniqueFd packed) {
  SHOAL_ASSIGN_OR_RETURN(Backends backends, make_backends(options));
  ProgramBuilder builder(std::move(backends), options.fallback);
  auto model = std::make_unique<ModelOnDevice>(std::move(graph), std::move(options), std::move(builder));
  SHOAL_RETURN_IF_ERROR(model->load(std::move(packed)));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace shoal::worker
