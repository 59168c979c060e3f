// shoal operators: the operators of MXNet that Shoal runs, and their devices.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "tools/shoal/commands.hpp"
#include "worker/exec/reference/reference_kernels.hpp"
#include "worker/import/mxnet/mxnet_catalog.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kOperatorsAbout =
    "Lists the operators of MXNet that Shoal runs, their other names, and the devices that have them.";
constexpr const char* kOperatorsMore =
    R"(Loading a model with another operator fails; the message names the operator and its node. `shoal inspect PATH` lists all such nodes of
a checkpoint.

  shoal operators
  shoal operators --markdown      the table of docs/operators.md)";

using Row = std::vector<std::string>;

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// The device cpu runs operators that oneDNN does not support by their reference kernels, so it has all that cpu-reference has.
std::vector<Row> rows() {
  std::vector<Row> rows{{"MXNet operator", "other names", "computed by", "cpu", "cpu-reference"}};
  for (const worker::MxnetCatalogEntry& entry : worker::mxnet_catalog()) {
    const bool has_kernels = std::ranges::all_of(
        entry.becomes, [](const std::string& name) { return worker::find_reference_kernel(name) != nullptr; });
    const std::string support = has_kernels ? "yes" : "no";
    const std::string by = entry.becomes.empty() ? "nothing: returns its input" : join(entry.becomes);
    rows.push_back({entry.name, join(entry.aliases), by, support, support});
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

}  // namespace

Command make_operators(CLI::App& application) {
  const auto markdown = std::make_shared<bool>(false);
  CLI::App* app = application.add_subcommand("operators", kOperatorsAbout);
  app->footer(kOperatorsMore);
  app->add_flag("--markdown", *markdown, "print the table in Markdown");
  return {app, [markdown](Session&) {
            if (*markdown) {
              print_markdown(rows());
            } else {
              std::printf("%s", align_columns(rows(), std::vector<bool>(5, false)).c_str());
            }
            return Finish();
          }};
}

}  // namespace shoal::tool
