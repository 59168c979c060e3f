// The names of the outputs of every operator with several, and of those whose one output has an own name: what MXNet 1.9.1 lists
// for the same symbol files (list_outputs). Those of control flow are in control_flow_test.
#include "worker/import/mxnet/mxnet_outputs.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "shm/base/format.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"

namespace shoal::worker {
namespace {

struct Names {
  const char* op;
  int inputs;
  const char* attributes;  ///< JSON
  std::vector<std::string> outputs;
};

const std::vector<std::string> kNumbered{"n_output0", "n_output1"}, kFirst{"n_output0"},
    kRange{"n_output", "n_min_output", "n_max_output"}, kNumberedRange{"n_output0", "n_output1", "n_output2"};

const std::vector<Names>& names() {
  static const std::vector<Names> all{
      {"RNN", 3, R"({"mode": "gru", "state_size": "2", "num_layers": "1"})", {"n_output"}},
      {"RNN",
       3,
       R"({"mode": "gru", "state_size": "2", "num_layers": "1", "state_outputs": "True"})",
       {"n_output", "n_state_output"}},
      {"_npx_rnn",
       4,
       R"({"mode": "lstm", "state_size": "2", "num_layers": "1", "state_outputs": "True"})",
       {"n_output", "n_state_output", "n_statecell_output"}},
      {"BatchNorm", 5, "{}", {"n_output", "n_mean", "n_var"}},
      {"LayerNorm", 3, R"({"output_mean_var": "True"})", {"n_output", "n_mean", "n_std"}},
      {"GroupNorm", 3, R"({"output_mean_var": "True"})", {"n_output", "n_mean", "n_std"}},
      {"LeakyReLU", 1, R"({"act_type": "rrelu"})", {"n_output"}},
      {"Dropout", 1, "{}", {"n_output"}},
      {"Pooling", 1, R"json({"kernel": "(2, 2)"})json", {"n_output"}},
      {"SliceChannel", 1, R"({"num_outputs": "1"})", kFirst},
      {"split", 1, R"({"num_outputs": "2"})", kNumbered},
      {"_split_v2", 1, R"json({"indices": "(0, 2)"})json", kNumbered},
      {"amp_multicast", 2, R"({"num_outputs": "2"})", kNumbered},
      {"moments", 1, R"json({"axes": "(0,)"})json", kNumbered},
      {"sort", 1, "{}", kFirst},
      {"argsort", 1, "{}", {"n_output"}},
      {"topk", 1, R"({"ret_typ": "both"})", kNumbered},
      {"topk", 1, R"({"ret_typ": "value"})", kFirst},
      {"topk", 1, R"({"ret_typ": "indices"})", {"n_output"}},
      {"topk", 1, R"({"ret_typ": "mask"})", {"n_output"}},
      {"_contrib_Proposal", 3, R"({"output_score": "True"})", {"n_output", "n_score"}},
      {"_contrib_MultiProposal", 3, R"({"output_score": "True"})", {"n_output", "n_score"}},
      {"ROIPooling", 2, R"json({"pooled_size": "(2, 2)", "spatial_scale": "1"})json", {"n_output"}},
      {"_contrib_box_nms", 1, "{}", kFirst},
      {"_contrib_box_encode", 6, "{}", kNumbered},
      {"_contrib_bipartite_matching", 1, R"({"threshold": "0.5"})", kNumbered},
      {"_linalg_det", 1, "{}", kFirst},
      {"_linalg_slogdet", 1, "{}", kNumbered},
      {"_linalg_gelqf", 1, "{}", kNumbered},
      {"_linalg_syevd", 1, "{}", kNumbered},
      {"_contrib_quantize", 3, "{}", kNumberedRange},
      {"_contrib_quantize_v2", 1, R"({"min_calib_range": "-1", "max_calib_range": "1"})", kNumberedRange},
      {"_contrib_requantize", 3, R"({"min_calib_range": "-1", "max_calib_range": "1"})", kNumberedRange},
      {"_contrib_quantized_act", 3, R"({"act_type": "relu"})", kRange},
      {"_contrib_quantized_pooling", 3, R"json({"kernel": "(2, 2)"})json", kRange},
      {"_contrib_quantized_flatten", 3, "{}", kRange},
      {"_contrib_quantized_elemwise_add", 6, "{}", kRange},
      {"_contrib_quantized_elemwise_mul", 6, "{}", kRange},
      {"_npi_matmul", 2, "{}", {"n_out"}},
      {"_npi_std", 1, "{}", {"n_std"}},
      {"_npi_var", 1, "{}", {"n_var"}},
      {"make_loss", 1, "{}", {"n_loss"}},
      {"_sparse_make_loss", 1, "{}", {"n_loss"}},
      {"MakeLoss", 1, "{}", {"n_output"}},
  };
  return all;
}

/// One node 'n' on variables, all of whose outputs in question are heads.
std::string symbol_of(const Names& row) {
  std::string variables, inputs, heads;
  for (int i = 0; i < row.inputs; ++i) {
    variables += format(R"({"op": "null", "name": "v{}", "inputs": []}, )", i);
    inputs += format("{}[{}, 0, 0]", i == 0 ? "" : ", ", i);
  }
  for (std::size_t i = 0; i < row.outputs.size(); ++i) heads += format("{}[{}, {}, 0]", i == 0 ? "" : ", ", row.inputs, i);
  return format(R"({"nodes": [{}{"op": "{}", "name": "n", "attrs": {}, "inputs": [{}]}], "arg_nodes": [], "heads": [{}]})",
                variables, row.op, row.attributes, inputs, heads);
}

TEST(MxnetOutputs, HaveTheNamesOfListOutputs) {
  for (const Names& row : names()) {
    const std::string text = symbol_of(row);
    const auto import = import_mxnet_symbol({"m-symbol.json", std::as_bytes(std::span(text)), nullptr}, {});
    ASSERT_TRUE(import.ok()) << import.status().to_string() << "\n" << text;
    std::vector<std::string> found;
    for (const GraphOutput& output : import->graph.outputs) found.push_back(output.name);
    EXPECT_EQ(found, row.outputs) << text;
  }
}

TEST(MxnetOutputs, AreFoundByTheirNames) {
  for (const Names& row : names()) {
    const std::string text = symbol_of(row);
    MemoryBudget budget{ImportLimits{}};
    const MxnetSymbol symbol = parse_mxnet_symbol({"m-symbol.json", std::as_bytes(std::span(text)), nullptr}, budget).value();
    for (std::size_t i = 0; i < row.outputs.size(); ++i) {
      const auto found = find_mxnet_output(symbol, row.outputs[i]);
      ASSERT_TRUE(found.has_value()) << row.op << " " << row.outputs[i];
      EXPECT_EQ(found->output, i) << row.op;
    }
  }
}

}  // namespace
}  // namespace shoal::worker
