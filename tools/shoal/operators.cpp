// shoal operators: the operators of MXNet that Shoal runs, and their devices.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "shm/base/errors.hpp"
#include "tools/shoal/commands.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/model.hpp"
#include "worker/graph/operators.hpp"
#include "worker/import/importer.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kOperatorsAbout =
    "Lists the operators of MXNet that Shoal runs, their other names, and the devices that have them.";
constexpr const char* kOperatorsMore =
    R"(Loading a model with another operator fails; the message names the operator and its node. `shoal inspect PATH` lists all such nodes of
a checkpoint.

  shoal operators
  shoal operators --markdown           the table of docs/operators.md
  shoal operators --family pooling     docs/operators/pooling.md: attributes and formulas of Shoal's own operators
  shoal operators --types              docs/operators/types.md: for which types the device cpu has something fast)";

using Row = std::vector<std::string>;

std::string join(const std::vector<std::string>& words, const char* between = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// Each operator has an oracle kernel, by which the device cpu runs it if it has nothing faster.
///   linked  with links to the pages of Shoal's own operators
std::vector<Row> rows(const worker::Importer& importer, bool linked) {
  std::vector<Row> rows{{format("{} operator", importer.kind().title), "other names", "computed by", "cpu", "cpu-reference"}};
  for (const worker::ForeignOperator& entry : importer.operators()) {
    std::vector<std::string> becomes = entry.becomes;
    for (std::string& name : becomes) {
      if (linked) name = format("[{}](operators/{}.md)", name, worker::find_operator(name)->family());
    }
    const std::string by = becomes.empty() ? "nothing: returns its input" : join(becomes);
    rows.push_back({entry.name, join(entry.aliases), by, "yes", "yes"});
  }
  return rows;
}

void print_markdown(const std::vector<Row>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& cell : rows[i]) std::printf("| %s ", cell.c_str());
    std::printf("|\n");
    if (i == 0) std::printf("|---|---|---|---|---|\n");
  }
}

void print_operator(const worker::Operator& op) {
  std::printf("\n## %s\n%s.\n\n", std::string(op.name).c_str(), op.formula);
  std::printf("- Inputs: %s; outputs: %s\n- Source: %s\n", op.inputs.to_text().c_str(), op.outputs.to_text().c_str(), op.source);
  if (op.attributes == nullptr) return;
  std::printf("\n| attribute | type | default | meaning |\n|---|---|---|---|\n");
  for (const auto& field : op.attributes->fields())
    std::printf("| `%s` | %s | %s | %s |\n", field.name.c_str(), field.type.c_str(), field.missing.c_str(),
                field.meaning.c_str());
}

/// The page of a family of Shoal's own operators.
///   Errors  kInvalidArgument: there is none of that name; lists them
Status print_family(const std::string& family) {
  std::vector<const worker::Operator*> members;
  std::set<std::string> families;
  std::vector<std::string> names;
  for (const worker::Operator* const op : worker::all_operators()) {
    families.emplace(op->family());
    if (op->family() != family) continue;
    members.push_back(op);
    names.emplace_back(op->name);
  }
  if (members.empty())
    return invalid_argument("there is no family '{}'; there are {}", family, join({families.begin(), families.end()}));
  std::printf(
      "# %s\n\nThis page is the output of `shoal operators --family %s`; a test compares the two. "
      "[operators.md](../operators.md) says which operators of MXNet\n"
      "become these.\n",
      join(names).c_str(), family.c_str());
  for (const worker::Operator* const op : members) print_operator(*op);
  return {};
}

/// The page of types: who computes an operator on the device cpu, for which of them.
Status print_types() {
  SHOAL_ASSIGN_OR_RETURN(const auto backends, worker::make_backends({}));
  const auto& device = backends.front();
  const std::vector<worker::TypeSupport> table = device->type_table();
  std::printf(
      "# Types on the device cpu\n\nThis page is the output of `shoal operators --types`; a test compares the two. The first "
      "that takes a "
      "node computes it. A node of another\ntype, or with attributes or shapes that none of them knows, runs by the oracle "
      "kernel, which is "
      "slow: `shoal inspect` names such nodes.\n\n"
      "| operator | computed by | in float32, between casts |\n|---|---|---|\n");
  for (const worker::Operator* const op : worker::all_operators()) {
    std::vector<std::string> by;
    std::string widened;
    for (const worker::TypeSupport& row : table) {
      if (row.op != op) continue;
      by.push_back(format("{}: {}", row.by, row.types.to_text()));
      widened += row.widened.to_text();
    }
    std::printf("| %s | %s | %s |\n", std::string(op->name).c_str(),
                op->bodies.count > 0 ? "its bodies"
                : by.empty()         ? "the oracle kernel"
                                     : join(by, "; ").c_str(),
                widened.c_str());
  }
  return {};
}

}  // namespace

Command make_operators(CLI::App& application) {
  const auto markdown = std::make_shared<bool>(false);
  const auto family = std::make_shared<std::string>();
  const auto types = std::make_shared<bool>(false);
  CLI::App* app = application.add_subcommand("operators", kOperatorsAbout);
  app->footer(kOperatorsMore);
  app->add_flag("--markdown", *markdown, "print the table in Markdown");
  app->add_option("--family", *family, "print the page of these operators of Shoal, in Markdown")->type_name("NAME");
  app->add_flag("--types", *types, "print the page of types, in Markdown");
  return {app, [markdown, family, types](Invocation&) -> Finish {
            if (*types) return print_types();
            if (!family->empty()) {
              const Status printed = print_family(*family);
              return printed.ok() ? Finish() : usage_failure(printed);
            }
            for (const worker::Importer* const importer : worker::all_importers()) {
              if (*markdown)
                print_markdown(rows(*importer, true));
              else
                std::printf("%s", align_columns(rows(*importer, false), std::vector<bool>(5, false)).c_str());
            }
            return Finish();
          }};
}

}  // namespace shoal::tool
