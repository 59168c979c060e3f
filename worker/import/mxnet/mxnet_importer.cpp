#include "worker/import/mxnet/mxnet_importer.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"
#include "worker/import/mxnet/attribute_reader.hpp"
#include "worker/import/mxnet/mxnet_fingerprint.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/import/mxnet/mxnet_outputs.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"
#include "worker/import/mxnet/mxnet_refusals.hpp"
#include "worker/import/mxnet/mxnet_symbol.hpp"
#include "worker/import/mxnet/mxnet_types.hpp"
#include "worker/import/names.hpp"
#include "worker/import/sparse_array.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kUnknownOutputs = 1024;  // outputs of an unsupported node; reading a later one is an error
constexpr std::size_t kOutputCopies = 8;       // of an output's name: in the graph, in programs and in descriptions
constexpr std::size_t kMostWarnings = 32, kWarningBytes = 400,
                      kReasonBytes = 400;  // hostile files would cause more and longer ones

/// Collects warnings: the first few, and the number of the others.
class Warnings {
 public:
  void add(std::string_view text) {
    if (++count_ > kMostWarnings) return;
    std::string& line = texts_.emplace_back(shortened(text, kWarningBytes));
    std::ranges::replace_if(
        line, [](unsigned char c) { return c < ' '; }, ' ');  // a name may contain line breaks; a warning is one line
  }
  std::vector<std::string> take() && {
    if (count_ > kMostWarnings) texts_.push_back(format("{} more warnings of this kind", count_ - kMostWarnings));
    return std::move(texts_);
  }

 private:
  std::vector<std::string> texts_;
  std::size_t count_ = 0;
};

/// The stored arrays by the names of the graph's variables.
class Parameters {
 public:
  /// Takes over the names; the budget has counted them already.
  static Result<Parameters> make(std::vector<NamedArray> arrays, MemoryBudget& budget) {
    constexpr std::size_t kLinks = 64;  // bytes of a map node's links, and of lists of its key
    SHOAL_RETURN_IF_ERROR(
        budget.take("the parameters by name", arrays.size(), sizeof(std::pair<const std::string, NamedArray>) + kLinks));
    Parameters parameters;
    for (NamedArray& array : arrays) {
      const auto [at, fresh] = parameters.by_key_.try_emplace(std::move(array.name));  // moves the name only if it is new
      at->second.array = std::move(array.array);  // the last of two equal names counts, as in MXNet
      at->second.sparse = std::move(array.sparse);
      if (!fresh) parameters.repeated_.push_back(std::move(array.name));
    }
    return parameters;
  }

  /// Looks for "arg:name", then "aux:name", then the bare name. Null when there is no such array, or it is a "none" array.
  const NamedArray* find(const std::string& variable) const {
    for (const char* prefix : {"arg:", "aux:", ""}) {
      const auto found = by_key_.find(prefix + variable);
      if (found != by_key_.end() && found->second.array.dtype != DType::kInvalid) return &found->second;
    }
    return nullptr;
  }

  /// True when the variable has "none" arrays only.
  bool is_none(const std::string& variable) const {
    if (find(variable)) return false;
    for (const char* prefix : {"arg:", "aux:", ""}) {
      if (by_key_.contains(prefix + variable)) return true;
    }
    return false;
  }

  /// The keys without a variable in the graph.
  std::vector<std::string_view> superfluous(const std::set<std::string_view>& variables) const {
    std::vector<std::string_view> keys;
    for (const auto& [stored, array] : by_key_) {
      const std::string_view key = stored;
      const bool is_prefixed = key.starts_with("arg:") || key.starts_with("aux:");
      if (!variables.contains(key) && !(is_prefixed && variables.contains(key.substr(4)))) keys.push_back(key);
    }
    return keys;
  }

  /// True when the file looks like Gluon's save_parameters: names with dots, and no prefixes.
  bool is_gluon_dictionary() const {
    bool dots = false;
    for (const auto& [key, array] : by_key_) {
      if (key.starts_with("arg:") || key.starts_with("aux:")) return false;
      dots = dots || key.find('.') != std::string::npos;
    }
    return dots;
  }

  const std::vector<std::string>& repeated() const { return repeated_; }
  /// True for a list without names.
  bool is_unnamed() const { return by_key_.size() == 1 && by_key_.begin()->first.empty(); }

 private:
  std::map<std::string, NamedArray> by_key_;
  std::vector<std::string> repeated_;
};

class Translation {
 public:
  /// wanted: the outputs by name; none: the heads. without_parameters: every variable becomes an input. survey: receives the
  /// operators and the nodes that cannot be imported; null: such nodes are errors.
  Translation(const MxnetSymbol& symbol, std::span<const std::string> wanted, const Parameters& parameters, MemoryBudget& budget,
              Warnings& warnings, bool without_parameters, Survey* survey = nullptr)
      : symbol_(symbol),
        wanted_(wanted),
        parameters_(parameters),
        budget_(budget),
        warnings_(warnings),
        without_parameters_(without_parameters),
        survey_(survey),
        outputs_(symbol.nodes.size()) {}

  Result<MxnetSymbolImport> run() {
    SHOAL_RETURN_IF_ERROR(find_heads());
    const std::vector<std::size_t> needed = post_order(symbol_, heads_, used_inputs);
    if (survey_) survey_->operators = count_operators(needed);
    if (!survey_) SHOAL_RETURN_IF_ERROR(check_operators(needed));
    for (const std::size_t id : needed) {
      const Status added = symbol_.nodes[id].is_variable() ? add_variable(id) : lower(id);
      if (added.ok()) continue;
      if (!survey_) return added.with_context(format("offset {}", symbol_.nodes[id].offset));
      SHOAL_RETURN_IF_ERROR(note_unsupported(id, added));
    }
    if (const Status added = add_heads(); !added.ok()) return added.with_context(format("offset {}", symbol_.heads_offset));
    graph().remove_unneeded_nodes();
    order_inputs();
    return std::move(import_);
  }

 private:
  Graph& graph() { return import_.graph; }

  Status find_heads() {
    for (const std::string& name : wanted_) {
      if (const auto found = find_mxnet_output(symbol_, name)) {
        heads_.push_back(*found);
        found_.push_back(name);
      } else if (const Status why = no_such_output(name, mxnet_internals(symbol_)); survey_) {
        warnings_.add(why.message());
      } else {
        return why;
      }
    }
    if (heads_.empty()) heads_ = symbol_.heads;
    return {};
  }

  /// The operators of these nodes, and of those in their subgraphs.
  std::vector<Survey::Operator> count_operators(const std::vector<std::size_t>& needed) const {
    std::vector<Survey::Operator> counts;
    std::map<std::string_view, std::size_t> places;  // in `counts`
    for_each_node(symbol_, needed, used_inputs, [&](const MxnetNode& node) {
      if (node.is_variable()) return;
      const auto [place, fresh] = places.try_emplace(node.op, counts.size());
      if (fresh) counts.push_back({node.op, 0});
      ++counts[place->second].count;
    });
    std::ranges::stable_sort(counts, std::greater<>(), &Survey::Operator::count);
    return counts;
  }

  /// Names all operators that Shoal does not have in one error, because a user who ports a model needs the whole list.
  Status check_operators(const std::vector<std::size_t>& needed) const {
    std::vector<std::string> unknown;
    std::set<std::string_view> explained;  // each operator once, because a reason may be long
    for_each_node(symbol_, needed, used_inputs, [&](const MxnetNode& node) {
      if (node.is_variable() || find_mxnet_operator(node.op)) return;
      const std::string_view why = explained.insert(node.op).second ? why_refused(node.op) : "";
      unknown.push_back(format("{} '{}'{}{}{}", node.op, node.name, why.empty() ? "" : " (", why, why.empty() ? "" : ")"));
    });
    if (unknown.empty()) return {};
    return unimplemented("{} of the graph's nodes are of operators that Shoal does not have: {}", unknown.size(),
                         listed(unknown));
  }

  /// Lists the node, and gives its readers values of unknown type and shape.
  Status note_unsupported(std::size_t id, const Status& why) {
    const MxnetNode& node = symbol_.nodes[id];
    const std::string prefix = node.op + " '" + node.name + "': ";  // most messages begin with it, and the entry has it
    const std::string& message = why.message();
    const std::string_view reason = std::string_view(message).substr(message.starts_with(prefix) ? prefix.size() : 0);
    survey_->unsupported.push_back({node.is_variable() ? "input" : node.op, node.name, shortened(reason, kReasonBytes)});
    note_unknown_within(node, node.name + "/");
    if (read_outputs_.empty()) count_read_outputs();
    const std::size_t count = read_outputs_[id];
    SHOAL_RETURN_IF_ERROR(budget_.take(format("the outputs of {} '{}'", node.op, node.name), count, value_bytes(node.name)));
    outputs_[id].clear();
    while (outputs_[id].size() < count) outputs_[id].push_back(graph().add_value({.name = node.name}));
    if (node.is_variable()) variables_[node.name] = outputs_[id].front();
    return {};
  }

  /// Lists the nodes of its subgraphs whose operators Shoal does not have.
  void note_unknown_within(const MxnetNode& node, const std::string& where) {
    for (const MxnetSymbol& graph : node.subgraphs) {
      for (const MxnetNode& inner : graph.nodes) {
        if (inner.is_variable()) continue;
        if (!find_mxnet_operator(inner.op)) {
          const std::string_view why = why_refused(inner.op);
          survey_->unsupported.push_back(
              {inner.op, where + inner.name, format("Shoal does not have this operator{}{}", why.empty() ? "" : ": ", why)});
        }
        note_unknown_within(inner, where + inner.name + "/");
      }
    }
  }

  /// For each node, the number of its outputs that others refer to; at least 1.
  void count_read_outputs() {
    read_outputs_.assign(symbol_.nodes.size(), 1);
    const auto count = [this](const std::vector<MxnetEntry>& entries) {
      for (const MxnetEntry& entry : entries) {
        std::size_t& outputs = read_outputs_[entry.node];
        outputs = std::max(outputs, std::min(entry.output, kUnknownOutputs - 1) + 1);
      }
    };
    for (const MxnetNode& reader : symbol_.nodes) count(reader.inputs);
    count(heads_);
  }

  Status add_variable(std::size_t id) {
    const MxnetNode& node = symbol_.nodes[id];
    const auto [place, fresh] = variables_.try_emplace(node.name, kNoValue);
    if (fresh) {
      SHOAL_ASSIGN_OR_RETURN(place->second, make_variable(node));
    }
    outputs_[id] = {place->second};
    return {};
  }

  Result<ValueId> make_variable(const MxnetNode& node) {
    const NamedArray* const stored = parameters_.find(node.name);
    if (stored && stored->sparse) {
      SHOAL_RETURN_IF_ERROR(budget_.take("the parts of a sparse array", 4, value_bytes(node.name)));
      return add_sparse(graph(), node.name, *stored);
    }
    Value value;
    value.name = node.name;
    if (stored) {
      value.dtype = stored->array.dtype;
      value.shape = stored->array.shape;
      value.constant = stored->array;
    } else if (parameters_.is_none(node.name)) {
      return invalid_argument("variable '{}': the array that the parameters hold for it has no value", node.name);
    } else {
      SHOAL_RETURN_IF_ERROR(describe_input(node, value));
    }
    return graph().add_value(std::move(value));
  }

  /// Reads `__shape__`, `__dtype__` and `__storage_type__` of an input.
  Status describe_input(const MxnetNode& node, Value& value) {
    const auto text = [&](const char* key) -> const std::string* {
      const auto found = node.attributes.find(key);
      return found == node.attributes.end() ? nullptr : &found->second;
    };
    const auto flag = [&](const char* key) -> std::optional<std::int64_t> {
      const auto number = text(key) ? parse_tuple(*text(key)) : std::nullopt;
      return number && number->size() == 1 ? std::optional(number->front()) : std::nullopt;
    };
    const std::int64_t storage = flag("__storage_type__").value_or(0);
    if (storage > 2) return unimplemented("input '{}' has the storage type {}, which no MXNet has", node.name, storage);
    if (storage > 0) import_.sparse_inputs[node.name] = storage_name(static_cast<Storage>(storage));
    if (const auto type = dtype_of_flag(flag("__dtype__").value_or(-1))) value.dtype = *type;
    if (const auto dims = text("__shape__") ? parse_tuple(*text("__shape__")) : std::nullopt; dims && dims->size() <= kMaxRank) {
      Dims open = *dims;
      const std::int64_t least = symbol_.np_shape ? 0 : 1;
      for (std::int64_t& dim : open) dim = dim >= least ? dim : -1;
      if (symbol_.np_shape || !open.empty()) value.shape = Shape(open);  // else MXNet writes () for what it does not know
    }
    return {};
  }

  /// Remembers the node that reads an input in the place of a parameter.
  void note_reader(const MxnetNode& node, const MxnetOperator& op, std::size_t slot, ValueId value) {
    if (without_parameters_ || slot < 1 || slot > op.parameters.size()) return;
    if (graph().value(value).constant || graph().value(value).producer != kNoNode) return;
    readers_.try_emplace(
        value, shortened(format("which {} '{}' reads as its {}", node.op, node.name, op.parameters[slot - 1]), kReasonBytes));
  }

  /// Lists an input that looks like a parameter without a value, with the node or the attribute that shows it.
  void note_missing(const MxnetNode& variable, ValueId input) {
    if (without_parameters_) return;
    if (const auto reader = readers_.find(input); reader != readers_.end()) {
      import_.missing_parameters.emplace(variable.name, reader->second);
      return;
    }
    for (const char* key : {"__init__", "__lr_mult__", "__wd_mult__"}) {
      if (!variable.attributes.contains(key)) continue;
      import_.missing_parameters.emplace(variable.name, format("which {} marks as a parameter", key));
      return;
    }
  }

  Status lower(std::size_t id) {
    const MxnetNode& node = symbol_.nodes[id];
    SHOAL_ASSIGN_OR_RETURN(const MxnetOperator* const op, operator_of(node));
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < std::min(used_inputs(node), node.inputs.size()); ++i) {
      SHOAL_ASSIGN_OR_RETURN(const ValueId value, value_of(symbol_, outputs_, node.inputs[i], node.name));
      SHOAL_RETURN_IF_ERROR(check_auxiliary(node, *op, i, value));
      note_reader(node, *op, i, value);
      inputs.push_back(value);
    }
    const auto warn = [this](std::string_view text) { warnings_.add(text); };
    SHOAL_ASSIGN_OR_RETURN(outputs_[id], lower_node(*op, node, std::move(inputs), graph(), budget_, warn));
    return {};
  }

  /// An auxiliary state is never an input. If it has no value, the checkpoint is incomplete.
  Status check_auxiliary(const MxnetNode& node, const MxnetOperator& op, std::size_t slot, ValueId value) {
    if (op.first_auxiliary < 0 || slot < static_cast<std::size_t>(op.first_auxiliary)) return {};
    const Value& state = graph().value(value);
    if (without_parameters_) {
      import_.auxiliaries.insert(state.name);
      return {};
    }
    if (state.constant || state.producer != kNoNode) return {};
    return invalid_argument("{} '{}': the parameters hold no value of its auxiliary state '{}'", node.op, node.name, state.name);
  }

  Status add_heads() {
    SHOAL_RETURN_IF_ERROR(check_names_of_heads());
    for (const MxnetEntry& head : heads_) {
      SHOAL_ASSIGN_OR_RETURN(const ValueId value, value_of(symbol_, outputs_, head, "a head of the graph"));
      SHOAL_RETURN_IF_ERROR(budget_.take("the name of a head", kOutputCopies, value_bytes(symbol_.nodes[head.node].name)));
      graph().outputs.push_back({output_name(head.node, head.output), value});
    }
    return {};
  }

  /// Only now it is known how many outputs each node has, and so what they are called.
  Status check_names_of_heads() {
    for (std::size_t i = 0; i < found_.size(); ++i) {
      MxnetEntry& head = heads_[i];
      std::vector<std::string> names;
      for (std::size_t k = 0; k < outputs_[head.node].size(); ++k) names.push_back(output_name(head.node, k));
      if (head.output < names.size() && names[head.output] == found_[i]) continue;
      const Status why = no_such_output(found_[i], names);
      if (!survey_ || names.empty()) return why;
      warnings_.add(why.message());
      head.output = std::min(head.output, names.size() - 1);
    }
    return {};
  }

  std::string output_name(std::size_t node, std::size_t output) const {
    return mxnet_output_name(symbol_.nodes[node], output, outputs_[node].size());
  }

  /// Inputs in list_arguments' order, and the arguments that no output needs: labels, and what only unread results need, as the
  /// ranges that a quantized operator hands on.
  void order_inputs() {
    std::vector<bool> is_read(graph().values.size());
    const auto read = [&](ValueId id) { is_read[static_cast<std::size_t>(id)] = true; };
    for (const Node& node : graph().nodes) std::ranges::for_each(node.inputs, read);
    for (const GraphOutput& output : graph().outputs) read(output.value);
    std::set<std::string> listed_names;
    for (const std::size_t id : post_order(symbol_, symbol_.heads, all_inputs)) {
      const MxnetNode& node = symbol_.nodes[id];
      if (!node.is_variable() || !listed_names.insert(node.name).second || parameters_.find(node.name)) continue;
      const auto used = variables_.find(node.name);
      if (used == variables_.end() || (!survey_ && !is_read[static_cast<std::size_t>(used->second)])) {
        graph().ignored_inputs.push_back(node.name);
        continue;
      }
      graph().inputs.push_back(used->second);
      note_missing(node, used->second);
    }
  }

  const MxnetSymbol& symbol_;
  const std::span<const std::string> wanted_;
  std::vector<MxnetEntry> heads_;   // the outputs
  std::vector<std::string> found_;  // their names, if they are wanted by name
  const Parameters& parameters_;
  MemoryBudget& budget_;
  Warnings& warnings_;
  const bool without_parameters_;
  Survey* const survey_;
  std::vector<std::vector<ValueId>> outputs_;  // by node of the file
  std::vector<std::size_t> read_outputs_;      // of unsupported nodes; empty until one is met
  std::map<std::string, ValueId> variables_;
  std::map<ValueId, std::string> readers_;  // of inputs, where parameters belong
  MxnetSymbolImport import_;
};

/// Refuses arrays that cannot belong to any graph's variables.
Status check_names(const MxnetSymbol& symbol, const Parameters& parameters, std::string_view params_file) {
  if (parameters.is_unnamed()) {
    return invalid_argument("{}: its arrays have no names, so they are no parameters of a graph", params_file);
  }
  if (!parameters.is_gluon_dictionary()) return {};
  for (const MxnetNode& node : symbol.nodes) {
    if (node.is_variable() && parameters.find(node.name)) return {};
  }
  return invalid_argument(
      "{}: none of its names is in the graph; they look like Gluon's save_parameters. Export the model with "
      "net.hybridize(); net(x); net.export(prefix)",
      params_file);
}

void warn_of_parameters(const MxnetSymbol& symbol, const Parameters& parameters, std::string_view params_file,
                        Warnings& warnings) {
  std::set<std::string_view> variables;
  for (const MxnetNode& node : symbol.nodes) {
    if (node.is_variable()) variables.insert(node.name);
  }
  if (const auto keys = parameters.superfluous(variables); !keys.empty()) {
    warnings.add(format("{}: the graph has no use for {}", params_file, listed(keys)));
  }
  if (!parameters.repeated().empty()) {
    warnings.add(format("{}: stored more than once, the last counts: {}", params_file, listed(parameters.repeated())));
  }
}

std::string writer_of(int version) {
  return version == 0 ? "MXNet of unknown version"
                      : format("MXNet {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

Result<Import> import_mxnet(const ForeignModel& model, const ImportLimits& limits, Survey* survey) {
  const ForeignFile& text = model.files[0];
  const ForeignFile& list = model.files[1];
  MemoryBudget budget(limits);
  SHOAL_ASSIGN_OR_RETURN(const MxnetSymbol symbol, parse_mxnet_symbol(text, budget));
  SHOAL_ASSIGN_OR_RETURN(std::vector<NamedArray> arrays, parse_mxnet_params(list, budget));
  SHOAL_ASSIGN_OR_RETURN(const Parameters parameters, Parameters::make(std::move(arrays), budget));
  SHOAL_RETURN_IF_ERROR(check_names(symbol, parameters, list.name));
  if (survey) {
    survey->version = symbol.version;
    survey->writer = writer_of(symbol.version);
  }
  Warnings warnings;
  auto import = Translation(symbol, model.outputs, parameters, budget, warnings, false, survey).run();
  if (!import.ok()) return import.status().with_context(text.name);
  warn_of_parameters(symbol, parameters, list.name, warnings);
  import->warnings = std::move(warnings).take();
  import->parameter_file = list.name;
  import->fingerprint = fingerprint(symbol);
  return Import(std::move(*import));
}

Result<MxnetSymbolImport> import_mxnet_symbol(const std::filesystem::path& symbol_file, const ImportLimits& limits) {
  SHOAL_ASSIGN_OR_RETURN(const ForeignFile file, ForeignFile::open(symbol_file));
  return import_mxnet_symbol(file, limits);
}

Result<MxnetSymbolImport> import_mxnet_symbol(const ForeignFile& symbol_file, const ImportLimits& limits) {
  MemoryBudget budget(limits);
  SHOAL_ASSIGN_OR_RETURN(const MxnetSymbol symbol, parse_mxnet_symbol(symbol_file, budget));
  const Parameters none;
  Warnings warnings;
  Result<MxnetSymbolImport> import = Translation(symbol, {}, none, budget, warnings, true).run();
  if (!import.ok()) return import.status().with_context(symbol_file.name);
  import->warnings = std::move(warnings).take();
  return import;
}

}  // namespace shoal::worker
