// A format that only tests have: a graph in plain text, one file PREFIX.textgraph and, where it exists, PREFIX.textgraph.data,
// which holds constants as float32. It plugs in by being linked; no other file knows it.
//
//   textgraph 1                  the first line of each file
//   input NAME DIMS...           float32
//   data NAME OFFSET DIMS...     a constant, at this byte of the file with data
//   AddN NAME INPUTS...          any of Shoal's operators without attributes; its output is called NAME
//   output NAME
#include <sstream>

#include "shm/base/errors.hpp"
#include "worker/graph/operators.hpp"
#include "worker/import/importer.hpp"
#include "worker/import/names.hpp"

namespace shoal::worker {
namespace {

constexpr std::string_view kFirstLine = "textgraph 1\n";

class TextGraph {
 public:
  TextGraph(const ForeignModel& model, Survey* survey) : model_(model), survey_(survey) {}

  Result<Import> read() {
    if (!text().starts_with(kFirstLine)) return data_loss("{}: offset 0: this is no text of a graph", name());
    std::istringstream lines{std::string(text().substr(kFirstLine.size()))};
    int number = 1;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (const Status added = add(std::istringstream(line)); !added.ok())
        return added.with_context(format("{}: line {}", name(), number));
    }
    for (const std::string& output : model_.outputs.empty() ? outputs_ : model_.outputs) {
      const auto found = values_.find(output);
      if (found == values_.end()) {
        std::vector<std::string> names;
        for (const auto& [known, value] : values_) names.push_back(known);
        return no_such_output(output, names);
      }
      import_.graph.outputs.push_back({output, found->second});
    }
    import_.graph.remove_unneeded_nodes();
    import_.parameter_file = name();
    return std::move(import_);
  }

 private:
  const std::string& name() const { return model_.files[0].name; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(model_.files[0].bytes.data()), model_.files[0].bytes.size()};
  }

  Status add(std::istringstream words) {
    std::string op, name;
    words >> op >> name;
    if (op == "output") {
      outputs_.push_back(name);
      return {};
    }
    Value value{.name = name, .dtype = DType::kFloat32};
    if (op == "input" || op == "data") {
      std::uint64_t offset = 0;
      if (op == "data") words >> offset;
      std::vector<std::int64_t> dims;
      for (std::int64_t dim; words >> dim;) dims.push_back(dim);
      value.shape = Shape(dims);
      if (op == "data") SHOAL_RETURN_IF_ERROR(read_data(offset, value));
      const bool is_input = !value.constant;
      values_[name] = import_.graph.add_value(std::move(value));
      if (is_input) import_.graph.inputs.push_back(values_[name]);
      return {};
    }
    const Operator* const known = find_operator(op);
    if (!known && survey_) survey_->unsupported.push_back({op, name, "Shoal does not have this operator"});
    if (!known && !survey_) return unimplemented("{} '{}': Shoal does not have this operator", op, name);
    Node node{.op = known, .name = name};
    for (std::string input; words >> input;) {
      if (!values_.contains(input)) return data_loss("{} '{}' reads '{}', which is not there", op, name, input);
      node.inputs.push_back(values_[input]);
    }
    value = {.name = name, .producer = static_cast<NodeId>(import_.graph.nodes.size())};
    if (!known) value.producer = kNoNode;
    values_[name] = import_.graph.add_value(std::move(value));
    node.outputs = {values_[name]};
    if (known) import_.graph.nodes.push_back(std::move(node));
    return {};
  }

  Status read_data(std::uint64_t offset, Value& value) const {
    if (model_.files.size() != 2) return not_found("'{}' lies in a file with data, which is not there", value.name);
    FieldReader fields(model_.files[1], std::min<std::uint64_t>(offset, model_.files[1].bytes.size()));
    const auto bytes = static_cast<std::uint64_t>(value.shape.element_count()) * sizeof(float);
    SHOAL_ASSIGN_OR_RETURN(const auto data, fields.take(value.name, bytes));
    value.constant = Constant{DType::kFloat32, value.shape, data, model_.files[1].owner};
    return {};
  }

  const ForeignModel& model_;
  Survey* const survey_;
  Import import_;
  std::map<std::string, ValueId> values_;
  std::vector<std::string> outputs_;
};

class TextFormat final : public Importer {
 public:
  TextFormat()
      : Importer({.name = "textgraph", .title = "Text", .graph_suffix = ".textgraph", .data_suffixes = {".textgraph.data"}}) {}

  std::vector<ForeignOperator> operators() const override { return {{"AddN", {}, {"AddN"}}}; }

 private:
  bool recognizes(const ForeignModel& model) const override {
    const auto bytes = model.files.front().bytes;
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()).starts_with(kFirstLine);
  }
  Result<Import> import(const ForeignModel& model, const ImportLimits&, Survey* survey) const override {
    return TextGraph(model, survey).read();
  }
};

const TextFormat kFormat;

}  // namespace
}  // namespace shoal::worker
