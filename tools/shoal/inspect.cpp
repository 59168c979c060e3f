// shoal inspect: the contents of a checkpoint.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/base/regular_file.hpp"
#include "shm/model/ignored_inputs.hpp"
#include "shm/model/model_config.hpp"
#include "shm/tensor/spec.hpp"
#include "shm/tensor/state.hpp"
#include "shm/wire/tensor_json.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/fetched.hpp"
#include "tools/shoal/in_process.hpp"
#include "tools/shoal/node_list.hpp"
#include "worker/engine/model_loader.hpp"
#include "worker/engine/sparse_inputs.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/exec/model.hpp"
#include "worker/exec/oracle_share.hpp"
#include "worker/exec/owned_outputs.hpp"
#include "worker/exec/padding.hpp"
#include "worker/import/importer.hpp"
#include "worker/passes/infer.hpp"
#include "worker/passes/sparse_forms.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;

constexpr const char* kInspectAbout =
    "Shows the contents of a checkpoint: files, format, inputs, outputs, operators, parameters, and what Shoal does not support.";
constexpr const char* kInspectMore =
    R"(Lists every node that cannot be imported, with its operator and the reason; `supported` in the JSON is then false. Input shapes come
from model.toml or the file, output shapes from the first set of inputs.

--nodes and --json also list every node of the graph, with what runs it: "kernel", "oracle", oneDNN's name of an implementation,
"constant" (computed at load) or "fused" (computed within another node's step).

Nodes that would run by an oracle kernel, which is slow, are listed with their share of the time: estimated, or measured with --profile.

  shoal inspect models/resnet-50
  shoal inspect models/resnet-50@7 --json)";

struct InspectOptions {
  std::string path;
  bool json = false, nodes = false, profile = false;
};

struct FileSize {
  std::string file;
  std::uint64_t bytes = 0;
};

struct Parameters {
  std::size_t arrays = 0;
  std::int64_t values = 0;
  std::uint64_t bytes = 0;
};

struct Report {
  ModelFiles files;
  std::vector<FileSize> sizes;
  worker::Survey survey;
  std::vector<TensorSpec> inputs, outputs;  ///< Shape::any(): not known
  Parameters parameters;
  std::vector<worker::RefusedNode> refused;  ///< the nodes that cannot be imported, or do not fit their inputs
  bool loads = false, is_wrong = false;      ///< is_wrong: a note says what loading refuses
  std::string precision, runs_in, tuning;    ///< as model.toml says; the one taken, empty if it is not known; how that was found
  std::vector<ListedNode> nodes;
  std::vector<worker::OracleNode> oracle_nodes;
  bool is_profiled = false;  ///< their share is measured
  std::size_t label_count = 0;
  std::vector<std::string> notes;
};

std::vector<FileSize> sizes_of(const ModelFiles& files) {
  std::vector<FileSize> sizes;
  std::vector<std::filesystem::path> all = files.files;
  if (!files.config_file.empty()) all.push_back(files.config_file);
  for (const auto& file : all) {
    std::error_code error;
    sizes.push_back({file.string(), std::filesystem::file_size(file, error)});
  }
  return sizes;
}

Parameters count_parameters(const worker::Graph& graph) {
  Parameters parameters;
  worker::for_each_graph(graph, [&](const worker::Graph& each) {
    for (const worker::Value& value : each.values) {
      if (!value.constant) continue;
      ++parameters.arrays;
      parameters.values += value.constant->shape.element_count();
      parameters.bytes += value.constant->bytes.size();
    }
  });
  return parameters;
}

std::string text_of(const worker::RefusedNode& node) { return format("{} '{}': {}", node.op, node.node, node.reason); }

void note_wrong(const Status& status, Report& report) {
  if (status.ok()) return;
  report.notes.push_back(status.message());
  report.is_wrong = true;
}

/// Notes what loading would refuse of model.toml, except the first set of inputs.
void check_config(const ModelConfig& config, const InputPlan& plan, Report& report) {
  const auto note = [&](const Status& status) { note_wrong(status, report); };
  for (std::size_t i = 1; i < plan.input_sets.size(); ++i) {
    worker::Graph graph = report.survey.import.graph;
    note(worker::infer(graph, plan.input_sets[i]).with_context(format("set {} of the shapes", i + 1)));
  }
  note(worker::make_backends({.device = config.device, .threads = config.threads}).status());
  note(check_state(config.state, plan.input_sets.front(), report.outputs, format("model '{}'", report.files.prefix)));
  note(worker::Padding::make(config.buckets, report.survey.import.graph, plan.inputs, plan.input_sets.front()).status());
  if (config.max_batch > 1) note(worker::check_joinable(report.survey.import.graph, plan.inputs, plan.input_sets.front()));
  if (!config.golden_file.empty())
    note(open_regular_file(report.files.directory / config.golden_file).status().with_context("golden"));
  const TensorSpec& first = report.outputs.front();
  if (report.label_count > 0 && first.shape.rank() > 0 && first.shape[first.shape.rank() - 1] >= 0 &&
      first.shape[first.shape.rank() - 1] != static_cast<std::int64_t>(report.label_count))
    report.notes.push_back(format("there are {} labels, but the last dimension of output '{}' is {}", report.label_count,
                                  first.name, first.shape[first.shape.rank() - 1]));
}

/// The time of each step in the second of two runs on zeros.
Result<std::vector<std::uint64_t>> profile(const worker::Program& program) {
  worker::Context context;
  Tensors tensors;  // owners
  std::vector<TensorView> src;
  for (const TensorSpec& spec : program.inputs()) {
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(spec.dtype, spec.shape));
    src.push_back(tensor.view());
    tensors.push_back({spec.name, std::move(tensor)});
  }
  std::vector<std::uint64_t> times(program.step_count());
  for (int run = 0; run < 2; ++run) {
    SHOAL_ASSIGN_OR_RETURN(auto outputs, worker::OwnedOutputs::make(program.outputs()));
    context.sink = &outputs;
    std::ranges::fill(times, 0);
    context.step_times = times;
    SHOAL_RETURN_IF_ERROR(program.run(context, src, outputs.views()));
  }
  return times;
}

/// Loads the model for its first set of inputs to learn what runs each node, and in which precision. Algorithms are measured only
/// if that chooses the precision.
Status see_program(const ModelConfig& config, const InputPlan& plan, const worker::Graph& inferred, const Working& working,
                   Report& report) {
  const auto& inputs = plan.input_sets.front();
  worker::ModelSource source{.name = report.files.prefix, .config = config, .tuning_progress = show_measuring(working)};
  if (!config.golden_file.empty()) source.config.golden_file = report.files.directory / config.golden_file;
  SHOAL_ASSIGN_OR_RETURN(worker::ModelOptions options, worker::model_options(source, plan));
  options.input_sets = {inputs};
  options.buckets.clear();
  options.max_batch = 1;
  if (options.precision != worker::Precision::kAuto) options.tuning_budget = {};
  SHOAL_ASSIGN_OR_RETURN(const auto model, worker::Model::load(report.survey.import.graph, std::move(options)));
  report.notes.insert(report.notes.end(), model->notes().begin(), model->notes().end());
  report.runs_in = worker::word_of(model->tuning().precision);
  if (config.precision == worker::word_of(worker::Precision::kAuto)) report.tuning = worker::to_text(model->tuning());
  model->enter_thread();
  SHOAL_ASSIGN_OR_RETURN(const auto program, model->program(inputs));
  const auto steps = program->steps();
  report.nodes = list_nodes(inferred, &steps, config.device, model->has_devices() ? "cpu" : config.device);
  std::vector<std::uint64_t> times;
  if (report.is_profiled) {
    auto measured = profile(*program);
    report.is_profiled = measured.ok();
    if (measured.ok()) {
      times = *std::move(measured);
    } else {
      report.notes.push_back(format("not measured, because a run on zeros fails: {}", measured.status().message()));
    }
  }
  report.loads = true;
  if (config.device != "cpu-reference") report.oracle_nodes = worker::find_oracle_nodes(steps, times);
  return {};
}

/// Inputs and outputs, with shapes as far as the files give them, and what runs each node.
///   graph  is inferred as far as that goes
void describe_tensors(const ModelConfig& config, worker::Graph& graph, const Working& working, Report& report) {
  report.inputs = graph.input_specs();
  for (const worker::GraphOutput& output : graph.outputs) report.outputs.push_back({output.name});
  const auto plan = plan_inputs(config, report.inputs, format("model '{}'", report.files.prefix));
  if (!plan.ok()) {
    report.notes.push_back(plan.status().message());
    return;
  }
  report.inputs = plan->inputs;
  const std::size_t missing = report.refused.size();
  const auto& inputs = plan->input_sets.front();
  if (const Status inferred = worker::infer_what_follows(graph, inputs, report.refused); !inferred.ok()) {
    report.notes.push_back("the shapes do not fit the graph: " + inferred.message());
    return;
  }
  if (report.refused.size() > missing)
    report.notes.push_back("the shapes do not fit the graph: " + text_of(report.refused[missing]));
  const bool is_open = std::ranges::any_of(plan->inputs, [](const TensorSpec& input) { return input.shape.element_count() < 0; });
  for (std::size_t i = 0; i < report.outputs.size(); ++i) {
    const worker::Value& value = graph.value(graph.outputs[i].value);
    if (value.dtype == DType::kInvalid) continue;
    report.outputs[i] = worker::open_spec(report.outputs[i].name, value.dtype, value.sizes());
    if (is_open) report.outputs[i].ranges.clear();  // they are those of the first set
  }
  if (!report.refused.empty()) return;
  check_config(config, *plan, report);
  if (report.is_wrong) return;  // what loading refuses cannot be loaded here
  if (const Status found = see_program(config, *plan, graph, working, report); !found.ok())
    report.notes.push_back(found.message());
}

/// The sparse tensors of the model, in the form in which loading has them.
void describe_sparse(ModelConfig& config, Report& report) {
  worker::Import& import = report.survey.import;
  for (const auto& [name, storage] : import.sparse_inputs) {
    if (!config.sparse.contains(name)) report.notes.push_back(worker::describe_dense_input(name, storage));
  }
  note_wrong(worker::take_sparse_inputs(config, import.graph, format("model '{}'", report.files.prefix)), report);
  worker::use_sparse_forms(import.graph);
}

Result<Report> look(const std::string& path, bool profile) {
  const Working working("looking into " + path);
  Report report{.is_profiled = profile};
  SHOAL_ASSIGN_OR_RETURN(report.files, find_model(path));
  SHOAL_ASSIGN_OR_RETURN(ModelConfig config, read_model_config(report.files));
  SHOAL_ASSIGN_OR_RETURN(const auto labels, read_labels(report.files, config));
  const auto limits = worker::ImportLimits::of_mb(config.import_mb);
  SHOAL_ASSIGN_OR_RETURN(report.survey, worker::survey_model(report.files.files, config.outputs, limits));
  report.sizes = sizes_of(report.files);
  report.label_count = labels.size();
  report.parameters = count_parameters(report.survey.import.graph);
  report.notes = report.survey.import.warnings;
  const auto said_of_labels = drop_ignored_inputs(config, report.survey.import.graph.ignored_inputs);
  report.notes.insert(report.notes.end(), said_of_labels.begin(), said_of_labels.end());
  const auto is_there = [&outputs = report.survey.import.graph.outputs](const std::string& name) {
    return std::ranges::count(outputs, name, &worker::GraphOutput::name) > 0;
  };
  report.is_wrong = !std::ranges::all_of(config.outputs, is_there);  // a warning names those that are missing
  note_wrong(check_parameters(report.survey.import, named_inputs(config)), report);
  describe_sparse(config, report);
  report.precision = config.precision;
  report.refused = report.survey.unsupported;
  worker::Graph graph = report.survey.import.graph;
  describe_tensors(config, graph, working, report);
  if (!report.loads) {
    report.nodes = list_nodes(graph, nullptr, {}, {});
    add_refused(report.refused, report.nodes);
  }
  return report;
}

json nodes_json(const std::vector<ListedNode>& nodes) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
  json list = json::array();
  for (const ListedNode& node : nodes) {
    list.push_back({{"name", node.name},
                    {"op", node.op},
                    {"device", text_or_null(node.device)},
                    {"by", text_or_null(node.by)},
                    {"types", text_or_null(node.types)},
                    {"missing", text_or_null(node.missing)}});
  }
  return list;
}

void print_json(const Report& report) {
  json files = json::array(), operators = json::array(), unsupported = json::array(), oracle_nodes = json::array();
  for (const auto& [file, bytes] : report.sizes) files.push_back({{"file", file}, {"bytes", bytes}});
  for (const auto& [name, count] : report.survey.operators) operators.push_back({{"name", name}, {"count", count}});
  for (const auto& [op, node, reason] : report.refused)
    unsupported.push_back({{"operator", op}, {"node", node}, {"reason", reason}});
  for (const auto& [node, share] : report.oracle_nodes) oracle_nodes.push_back({{"node", node}, {"share", share}});
  const json object{
      {"format", report.survey.kind->name},
      {format("{}_version", report.survey.kind->name), report.survey.version},
      {"prefix", report.files.prefix},
      {"epoch", report.files.epoch},
      {"version", report.files.version},
      {"files", files},
      {"inputs", wire::to_json(report.inputs)},
      {"ignored_inputs", report.survey.import.graph.ignored_inputs},
      {"outputs", wire::to_json(report.outputs)},
      {"precision", {{"asked", report.precision}, {"runs_in", report.runs_in.empty() ? json() : json(report.runs_in)}}},
      {"operators", operators},
      {"parameters",
       {{"arrays", report.parameters.arrays}, {"values", report.parameters.values}, {"bytes", report.parameters.bytes}}},
      {"labels", report.label_count},
      {"supported", report.refused.empty()},
      {"loads", report.loads},
      {"unsupported", unsupported},
      {"nodes", nodes_json(report.nodes)},
      {"oracle_nodes", oracle_nodes},
      {"oracle_shares_are", report.is_profiled ? "measured" : "estimated"},
      {"notes", report.notes}};
  std::printf("%s\n", json_text(object).c_str());
}

void print_section(const std::string& title, const std::vector<std::vector<std::string>>& rows,
                   const std::vector<bool>& right_aligned) {
  if (rows.empty()) return;
  std::printf("\n%s\n", title.c_str());
  std::fputs(align_columns(rows, right_aligned).c_str(), stdout);
}

std::vector<std::vector<std::string>> rows_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::vector<std::string>> rows;
  for (const TensorSpec& spec : specs) {
    rows.push_back(
        {"  " + spec.name, std::string(dtype_name(spec.dtype)), !spec.shape.is_known() ? "shape not known" : shape_text(spec)});
  }
  return rows;
}

void print_text(const Report& report, bool with_nodes) {
  const worker::Survey& survey = report.survey;
  const std::string epoch = survey.kind->weights_suffix.empty() ? "" : format(", epoch {}", report.files.epoch);
  const std::string writer = survey.writer.empty() ? "" : ", written by " + survey.writer;
  std::printf("%s%s: %s checkpoint%s\n", report.files.prefix.c_str(), epoch.c_str(), std::string(survey.kind->title).c_str(),
              writer.c_str());
  std::vector<std::vector<std::string>> rows;
  for (const auto& [file, bytes] : report.sizes) rows.push_back({"  " + file, format_bytes(bytes)});
  print_section("files", rows, {false, true});
  print_section("inputs", rows_of(report.inputs), {false, false, false});
  rows.clear();
  for (const std::string& name : survey.import.graph.ignored_inputs) rows.push_back({"  " + name});
  print_section("inputs that are ignored (labels)", rows, {false});
  print_section("outputs", rows_of(report.outputs), {false, false, false});
  rows.clear();
  for (const auto& [name, count] : survey.operators) rows.push_back({"  " + name, std::to_string(count)});
  print_section("operators", rows, {false, true});
  std::printf("\nparameters\n  %zu arrays, %lld numbers, %s\n", report.parameters.arrays,
              static_cast<long long>(report.parameters.values), format_bytes(report.parameters.bytes).c_str());
  const std::string runs_in = report.runs_in.empty() || report.runs_in == report.precision ? "" : ", runs in " + report.runs_in;
  std::printf("\nprecision\n  %s%s%s\n", report.precision.c_str(), runs_in.c_str(),
              report.tuning.empty() ? "" : format(" ({})", report.tuning).c_str());
  if (report.label_count > 0) std::printf("\nlabels\n  %zu\n", report.label_count);
  if (with_nodes) {
    rows.clear();
    for (const ListedNode& node : report.nodes) {
      rows.push_back({"  " + node.name, node.op, node.device, node.missing.empty() ? node.by : "missing", node.types});
    }
    print_section("nodes", rows, {false, false, false, false, false});
  }
  rows.clear();
  for (const auto& [op, node, reason] : report.refused) rows.push_back({"  " + op, node, reason});
  print_section("not supported", rows, {false, false, false});
  rows.clear();
  for (const auto& [node, share] : report.oracle_nodes)
    rows.push_back({"  " + node, format("{} %", std::round(1000 * share) / 10)});
  print_section(format("run by oracle kernels, which are slow, with their {} share of the time",
                       report.is_profiled ? "measured" : "estimated"),
                rows, {false, true});
  rows.clear();
  for (const std::string& note : report.notes) rows.push_back({"  " + note});
  print_section("notes", rows, {false});
  std::printf("\n%s\n", !report.refused.empty() ? "cannot be run: see \"not supported\""
                        : report.loads          ? "every operator is supported"
                                                : "every operator is supported, but the model does not load: see \"notes\"");
}

Finish inspect(const InspectOptions& options, Invocation& invocation) {
  SHOAL_ASSIGN_OR_RETURN(const std::string path, local_model(options.path, invocation.console));
  SHOAL_ASSIGN_OR_RETURN(const Report report, look(path, options.profile));
  options.json ? print_json(report) : print_text(report, options.nodes);
  return {};
}

}  // namespace

Command make_inspect(CLI::App& application) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* app = application.add_subcommand("inspect", kInspectAbout);
  app->footer(kInspectMore);
  app->add_option("PATH", options->path, "the checkpoint: PREFIX, PREFIX@EPOCH, a directory, or the URL of one")->required();
  app->add_flag("--json", options->json, "print JSON");
  app->add_flag("--nodes", options->nodes, "list every node with its device, what runs it, and its types (--json always does)");
  app->add_flag("--profile", options->profile, "run the model twice to measure how long slow nodes take");
  return {app, [options](Invocation& invocation) { return inspect(*options, invocation); }};
}

}  // namespace shoal::tool
