#include "worker/import/mxnet/mxnet_importer.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "shm/base/format.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/unit/worker/import/mxnet/array_files.hpp"
#include "tests/unit/worker/import/mxnet/refusals.hpp"
#include "worker/graph/operators.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/reshape.hpp"

namespace shoal::worker {
namespace {

/// A -symbol.json in the making.
class Symbol {
 public:
  int variable(const std::string& name, const std::string& attributes = "{}") { return add("null", name, attributes, {}); }
  int op(const std::string& op, const std::string& name, const std::vector<int>& inputs, const std::string& attributes = "{}") {
    return add(op, name, attributes, inputs);
  }
  std::string json(const std::string& heads) const {
    return "{\"nodes\": [" + nodes_ + "], \"arg_nodes\": [], \"heads\": " + heads + "}";
  }
  std::string json() const { return json(format("[[{}, 0, 0]]", count_ - 1)); }

 private:
  int add(const std::string& op, const std::string& name, const std::string& attributes, const std::vector<int>& inputs) {
    std::string entries;
    for (const int input : inputs) entries += format("{}[{}, 0, 0]", entries.empty() ? "" : ", ", input);
    nodes_ += format(R"({}{"op": "{}", "name": "{}", "attrs": {}, "inputs": [{}]})", count_ == 0 ? "" : ", ", op, name,
                     attributes, entries);
    return count_++;
  }
  std::string nodes_;
  int count_ = 0;
};

class MxnetImporter : public ::testing::Test {
 protected:
  /// Imports `json` with a parameter file that holds a float32 array of 3 elements under each key.
  Result<Import> import(const std::string& json, const std::vector<std::string>& keys = {},
                        std::vector<std::string> outputs = {}) {
    scratch_.write("m-symbol.json", json);
    const std::string array = test::record(test::Era::kV2, {3}, 0, std::string(12, '\0'));
    scratch_.write("m-0000.params", test::list(std::vector(keys.size(), array), keys));
    return read_model({scratch_.path("m-symbol.json"), scratch_.path("m-0000.params")}, std::move(outputs));
  }
  void expect_refused(const std::string& json, StatusCode code, const std::vector<std::string>& parts,
                      const std::vector<std::string>& keys = {}) {
    test::expect_refusal(import(json, keys).status(), code, parts);
  }
  const test::ScratchDirectory scratch_;
};

std::vector<std::string> input_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const ValueId id : graph.inputs) names.push_back(graph.value(id).name);
  return names;
}

TEST_F(MxnetImporter, ListsInputsInTheOrderOfListArguments) {
  Symbol s;
  const int late = s.variable("late"), early = s.variable("early");
  s.op("elemwise_sub", "sub", {early, late});
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(input_names(result->graph), (std::vector<std::string>{"early", "late"}));
}

TEST_F(MxnetImporter, PrunesLabelsEvenBehindAReshape) {
  Symbol s;
  const int data = s.variable("data"), label = s.variable("softmax_label");
  s.op("SoftmaxOutput", "softmax", {data, s.op("Reshape", "flat", {label}, R"json({"shape": "(-1,)"})json")});
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(input_names(result->graph), std::vector<std::string>{"data"});
  EXPECT_EQ(result->graph.ignored_inputs, std::vector<std::string>{"softmax_label"});
  EXPECT_EQ(result->graph.nodes.size(), 1u);
  EXPECT_EQ(result->graph.outputs[0].name, "softmax_output");
}

TEST_F(MxnetImporter, KeepsALabelThatIsAlsoData) {
  Symbol s;
  const int data = s.variable("data");
  s.op("SoftmaxOutput", "softmax", {data, data});
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(input_names(result->graph), std::vector<std::string>{"data"});
  EXPECT_TRUE(result->graph.ignored_inputs.empty());
}

TEST_F(MxnetImporter, LeavesOutIdentitiesAndKeepsTheirNames) {
  Symbol s;
  s.op("Dropout", "drop", {s.op("_copy", "copy", {s.variable("data")})}, R"json({"p": "0.5"})json");
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->graph.nodes.empty());
  EXPECT_EQ(result->graph.outputs[0].name, "drop_output");
  EXPECT_EQ(result->graph.outputs[0].value, result->graph.inputs[0]);
}

TEST_F(MxnetImporter, NamesOutputsAsListOutputsDoes) {
  Symbol s;
  const int data = s.variable("data");
  const std::vector<int> norm{data, s.variable("g"), s.variable("b"), s.variable("m"), s.variable("v")};
  s.op("BatchNorm", "bn", norm);
  s.op("amp_multicast", "cast", {data, data}, R"json({"num_outputs": "2"})json");
  const auto result = import(s.json("[[5, 0, 0], [5, 2, 0], [6, 1, 0], [0, 0, 0]]"), {"arg:g", "arg:b", "aux:m", "aux:v"});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  std::vector<std::string> names;
  for (const GraphOutput& output : result->graph.outputs) names.push_back(output.name);
  EXPECT_EQ(names, (std::vector<std::string>{"bn_output", "bn_var", "cast_output1", "data"}));
}

TEST_F(MxnetImporter, GivesInnerValuesByTheNamesOfGetInternals) {
  Symbol s;
  const int data = s.variable("data"), label = s.variable("softmax_label");
  const int split = s.op("SliceChannel", "parts", {data}, R"json({"num_outputs": "2"})json");
  s.op("SoftmaxOutput", "softmax", {s.op("relu", "act", {split}), label});
  const auto names_for = [&](const std::vector<std::string>& wanted) {
    const auto result = import(s.json(), {}, wanted);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    std::vector<std::string> names;
    if (!result.ok()) return names;
    for (const GraphOutput& output : result->graph.outputs) names.push_back(output.name);
    EXPECT_EQ(input_names(result->graph), std::vector<std::string>{"data"});
    EXPECT_EQ(result->graph.ignored_inputs, std::vector<std::string>{"softmax_label"}) << "requests may still bring labels";
    return names;
  };
  for (const std::vector<std::string>& wanted :
       std::vector<std::vector<std::string>>{{"act_output"}, {"parts_output1", "data"}, {"softmax_output", "parts_output0"}})
    EXPECT_EQ(names_for(wanted), wanted);
  EXPECT_EQ(import(s.json(), {}, {"parts_output0"}).value().graph.nodes.size(), 1u);
}

TEST_F(MxnetImporter, NamesWhatIsLikeAnOutputThatDoesNotExist) {
  Symbol s;
  const int data = s.variable("data");
  const int split = s.op("SliceChannel", "parts", {data}, R"json({"num_outputs": "2"})json");
  s.op("relu", "act", {s.op("abs", "magnitude", {split})});
  const auto error_of = [&](const std::string& wanted) { return import(s.json(), {}, {wanted}).status(); };
  EXPECT_EQ(error_of("magnitud").code(), StatusCode::kNotFound);
  for (const auto& [wanted, like] : std::vector<std::pair<std::string, std::string>>{{"magnitude", "magnitude_output"},
                                                                                     {"act_output0", "act_output"},
                                                                                     {"act_output7", "act_output"},
                                                                                     {"parts_output", "parts_output0"},
                                                                                     {"act_", "act_output"},
                                                                                     {"dta", "data"}}) {
    const std::string message = error_of(wanted).message();
    EXPECT_NE(message.find("'" + wanted + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("'" + like + "'"), std::string::npos) << message;
  }
}

TEST_F(MxnetImporter, ReadsABatchNormWithReluAsBoth) {
  Symbol s;
  const int data = s.variable("data");
  const std::vector<int> norm{data, s.variable("g"), s.variable("b"), s.variable("m"), s.variable("v")};
  s.op("_contrib_BatchNormWithReLU", "bn", norm, R"({"eps": "1e-05", "fix_gamma": "False"})");
  const std::string heads = "[[5, 0, 0], [5, 1, 0], [5, 2, 0]]";
  const auto result = import(s.json(heads), {"arg:g", "arg:b", "aux:m", "aux:v"});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  const Node &norm_node = result->graph.nodes.at(0), &relu_node = result->graph.nodes.at(1);
  EXPECT_EQ(norm_node.op->name, "BatchNorm");
  EXPECT_EQ(relu_node.op->name, "Activation");
  EXPECT_EQ(relu_node.inputs, std::vector<ValueId>{norm_node.outputs[0]});
  std::vector<std::string> names;
  for (const GraphOutput& output : result->graph.outputs) names.push_back(output.name);
  EXPECT_EQ(names, (std::vector<std::string>{"bn_output", "bn_mean", "bn_var"}));
  EXPECT_EQ(result->graph.outputs[0].value, relu_node.outputs[0]);
  const auto statistics = import(s.json("[[5, 1, 0]]"), {"arg:g", "arg:b", "aux:m", "aux:v"});
  ASSERT_TRUE(statistics.ok()) << statistics.status().to_string();
  EXPECT_EQ(statistics->graph.nodes.size(), 1u) << "nobody reads what the relu computes";
  expect_refused(s.json("[[5, 3, 0]]"), StatusCode::kUnimplemented, {"'bn'"}, {"arg:g", "arg:b", "aux:m", "aux:v"});
  expect_refused(s.json(), StatusCode::kInvalidArgument, {"_contrib_BatchNormWithReLU 'bn'", "'v'"}, {"arg:g", "arg:b", "aux:m"});
}

TEST_F(MxnetImporter, ReadsTheTableOfAnEmbeddingFirst) {
  Symbol s;
  s.op("Embedding", "words", {s.variable("ids"), s.variable("w")}, R"json({"input_dim": "3", "output_dim": "1"})json");
  const auto result = import(s.json(), {"arg:w"});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  const Node& take = result->graph.nodes.at(0);
  EXPECT_EQ(take.op->name, "Take");
  EXPECT_EQ(result->graph.value(take.inputs[0]).name, "w");
  EXPECT_TRUE(import(s.json()).value().missing_parameters.contains("w"));
}

TEST_F(MxnetImporter, ReadsAShapeWhereItIsMadeFirst) {
  Symbol s;
  const int data = s.variable("data"), anchors = s.variable("anchors");
  const int scaled = s.op("_mul_scalar", "nothing", {s.op("relu", "act", {data})}, R"json({"scalar": "0"})json");
  s.op("slice_like", "cut", {anchors, scaled}, R"json({"axes": "(0,)"})json");
  const auto result = import(s.json(), {"arg:anchors"});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  ASSERT_EQ(result->graph.nodes.size(), 1u) << "nobody reads what relu and _mul_scalar compute";
  EXPECT_EQ(result->graph.nodes[0].inputs[1], result->graph.inputs[0]);
}

TEST_F(MxnetImporter, MakesTensorsWithoutInputs) {
  const auto made = [this](const std::string& op, const std::string& attributes) {
    Symbol s;
    s.op(op, "made", {}, attributes);
    const auto result = import(s.json());
    return result.ok() ? result->graph.nodes.at(0).attributes.to_text() : result.status().message();
  };
  EXPECT_EQ(made("_zeros", R"json({"shape": "(0, 5)", "dtype": "float16", "ctx": "cpu(0)"})json"),
            "value=0, shape=(-1, 5), shape_of_input=false, dtype=float16");
  EXPECT_EQ(made("_npi_zeros", R"json({"shape": "(0, 5)"})json"), "value=0, shape=(0, 5), shape_of_input=false, dtype=float32");
  EXPECT_NE(made("_zeros", "{}").find("attribute shape is missing"), std::string::npos);
  const std::string range = "repeat=1, count=3, axis=none, in_float64=false, dtype=float32";
  EXPECT_EQ(made("_arange", R"json({"start": "3"})json"), "start=0, step=1, " + range);
  EXPECT_EQ(made("_arange", R"json({"start": "0", "stop": "1", "step": "0.4"})json"), "start=0, step=0.4, " + range);
  EXPECT_NE(made("_arange", R"json({"start": "3", "infer_range": "True"})json").find("start=3, step=1, repeat=1, count=-1"),
            std::string::npos);
  for (const char* bad : {R"json({"start": "3", "stop": "3"})json", R"json({"start": "0", "stop": "1e18"})json",
                          R"json({"start": "0", "stop": "nan"})json", R"json({"start": "0", "stop": "3", "step": "0"})json"})
    EXPECT_NE(made("_arange", bad).find("_arange 'made'"), std::string::npos) << bad;
}

TEST_F(MxnetImporter, NamesWhatAnIndexingOperatorCannotDo) {
  const auto expect_error = [this](const std::string& op, std::size_t inputs, const std::string& attributes, const char* key) {
    Symbol s;
    std::vector<int> sources;
    for (std::size_t i = 0; i < inputs; ++i) sources.push_back(s.variable("x" + std::to_string(i)));
    s.op(op, "odd", sources, attributes);
    expect_refused(s.json(), StatusCode::kInvalidArgument, {op + " 'odd'", key});
  };
  expect_error("take", 2, R"json({"mode": "mirror"})json", "mode");
  expect_error("pick", 2, R"json({"axis": "None"})json", "axis");
  expect_error("topk", 1, R"json({"ret_typ": "order"})json", "ret_typ");
  expect_error("topk", 1, R"json({"dtype": "float8"})json", "dtype");
  expect_error("one_hot", 1, "{}", "depth");
  expect_error("reverse", 1, R"json({"axis": "-1"})json", "axis");
  expect_error("broadcast_axis", 1, R"json({"axis": "(0, 1)", "size": "2"})json", "size");
  expect_error("tile", 1, R"json({"reps": "(0, 1)"})json", "reps");
  expect_error("repeat", 1, R"json({"repeats": "0"})json", "repeats");
  expect_error("_split_v2", 1, R"json({"indices": "(1, 2)"})json", "indices");
  expect_error("stack", 2, R"json({"num_args": "3"})json", "num_args");
  expect_error("_contrib_boolean_mask", 2, R"json({"axis": "1"})json", "axis");
  expect_error("_contrib_boolean_mask", 1, "{}", "1 inputs");
}

TEST_F(MxnetImporter, NumbersTheOutputsOfASplitEvenWhenThereIsOne) {
  Symbol s;
  s.op("SliceChannel", "part", {s.variable("data")}, R"json({"num_outputs": "1"})json");
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->graph.outputs[0].name, "part_output0");
}

TEST_F(MxnetImporter, FindsParametersUnderAnyPrefix) {
  Symbol s;
  const int a = s.variable("a"), b = s.variable("b"), c = s.variable("c");
  s.op("add_n", "sum", {a, b, c}, R"json({"num_args": "3"})json");
  const auto result = import(s.json(), {"arg:a", "aux:b", "c"});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->graph.inputs.empty());
  EXPECT_TRUE(result->warnings.empty());
}

TEST_F(MxnetImporter, WarnsOfWhatItHasNoUseFor) {
  Symbol s;
  s.op("Activation", "act", {s.variable("data")}, R"json({"act_type": "relu", "color": "red"})json");
  const auto result = import(s.json(), {"arg:stranger", "grad:data"});
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->warnings.size(), 2u);
  EXPECT_NE(result->warnings[0].find("color"), std::string::npos);
  for (const char* key : {"arg:stranger", "grad:data"}) EXPECT_NE(result->warnings[1].find(key), std::string::npos) << key;
}

TEST_F(MxnetImporter, NamesEveryOperatorItDoesNotHave) {
  Symbol s;
  s.op("Custom", "odd1", {s.op("FancyConvolution", "odd2", {s.variable("data")})});
  expect_refused(s.json(), StatusCode::kUnimplemented, {"m-symbol.json", "Custom 'odd1'", "FancyConvolution 'odd2'"});
}

TEST_F(MxnetImporter, SaysOnceWhyItDoesNotHaveAnOperator) {
  Symbol s;
  s.op("CTCLoss", "second", {s.op("CTCLoss", "first", {s.variable("data")})});
  expect_refused(s.json(), StatusCode::kUnimplemented, {"CTCLoss 'first' (it is for training", "), CTCLoss 'second'"});
}

TEST_F(MxnetImporter, KnowsTheNamesThatOperatorsHadInOldReleases) {
  for (const char* name : {"Softmax",
                           "ElementWiseSum",
                           "_Plus",
                           "_plus",
                           "_Minus",
                           "_minus",
                           "_Mul",
                           "_mul",
                           "_Div",
                           "_div",
                           "_PlusScalar",
                           "_MinusScalar",
                           "_RDivScalar",
                           "_MaximumScalar",
                           "_Maximum",
                           "_Power",
                           "_Not_Equal",
                           "_Greater_Equal",
                           "broadcast_plus",
                           "SwapAxis",
                           "broadcast_minus",
                           "sum_axis",
                           "max_axis",
                           "min_axis",
                           "crop",
                           "_CrossDeviceCopy",
                           "flatten",
                           "reshape",
                           "BatchNorm_v1",
                           "CuDNNBatchNorm",
                           "Pooling_v1",
                           "Convolution_v1",
                           "_add",
                           "_grad_add",
                           "concat",
                           "cast",
                           "stop_gradient",
                           "make_loss",
                           "swapaxes",
                           "split",
                           "pad",
                           "_Hypot",
                           "choose_element_0index",
                           "broadcast_axes",
                           "flip",
                           "argmax_channel",
                           "batch_take"}) {
    EXPECT_NE(find_mxnet_operator(name), nullptr) << name;
  }
}

TEST_F(MxnetImporter, PrunesLabelsBehindFlattenToo) {
  Symbol s;
  const int data = s.variable("data"), label = s.variable("label");
  s.op("LinearRegressionOutput", "head", {data, s.op("Flatten", "flat", {label})});
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->graph.ignored_inputs, std::vector<std::string>{"label"});
}

TEST_F(MxnetImporter, IgnoresWhatOnlyUnreadResultsNeed) {
  Symbol s;
  const int data = s.variable("data"), least = s.variable("least"), most = s.variable("most");
  s.op("_contrib_quantized_flatten", "flat", {data, least, most});  // hands the range on as its other two results
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->graph.inputs.size(), 1u);
  EXPECT_EQ(result->graph.ignored_inputs, (std::vector<std::string>{"least", "most"}));
}

TEST_F(MxnetImporter, KeepsTheNodesOfMixedPrecision) {
  Symbol s;
  s.op("amp_cast", "cast", {s.variable("data")}, R"json({"dtype": "float16"})json");
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->graph.nodes.size(), 1u);
}

TEST_F(MxnetImporter, TakesTheLastOfAnArrayStoredTwiceAndSaysSo) {
  Symbol s;
  s.op("_copy", "c", {s.variable("a")});
  const auto result = import(s.json(), {"arg:a", "arg:a"});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  ASSERT_EQ(result->warnings.size(), 1u);
  EXPECT_NE(result->warnings[0].find("arg:a"), std::string::npos) << result->warnings[0];
}

TEST_F(MxnetImporter, LooksAtNothingThatNoHeadNeeds) {
  Symbol s;
  const int data = s.variable("data");
  s.op("Custom", "dead", {data});
  const int relu = s.op("Activation", "act", {data}, R"json({"act_type": "relu"})json");
  EXPECT_TRUE(import(s.json(format("[[{}, 0, 0]]", relu))).ok());
}

TEST_F(MxnetImporter, ReadsAGraphOfAnyDepth) {
  Symbol s;
  int last = s.variable("data");
  constexpr int kDepth = 20000;
  for (int i = 0; i < kDepth; ++i) last = s.op("_mul_scalar", "m" + std::to_string(i), {last}, R"json({"scalar": "1"})json");
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->graph.nodes.size(), static_cast<std::size_t>(kDepth));
}

TEST_F(MxnetImporter, ReadsAttributesUnderAttr) {
  EXPECT_TRUE(import(R"json({"nodes": [{"op": "null", "name": "data", "inputs": []},
    {"op": "Activation", "name": "act", "attr": {"act_type": "tanh"}, "inputs": [[0, 0]]}], "arg_nodes": [0], "heads": [[1, 0]]})json")
                  .ok());
}

TEST_F(MxnetImporter, RefusesAnAuxiliaryStateWithoutAValue) {
  Symbol s;
  const std::vector<int> norm{s.variable("data"), s.variable("g"), s.variable("b"), s.variable("m"), s.variable("v")};
  s.op("BatchNorm", "bn", norm);
  expect_refused(s.json(), StatusCode::kInvalidArgument, {"BatchNorm 'bn'", "'v'"}, {"arg:g", "arg:b", "aux:m"});
}

// Gluon's exports say the shapes of parameters, too: without a value they look like inputs.
TEST_F(MxnetImporter, TellsParametersWithoutAValueFromInputs) {
  Symbol s;
  const int data = s.variable("data"), weight = s.variable("w", R"json({"__shape__": "(4, 3)"})json"), bias = s.variable("b");
  const int layer = s.op("FullyConnected", "fc", {data, weight, bias}, R"json({"num_hidden": "4"})json");
  const int slope = s.variable("slope"), leaky = s.op("LeakyReLU", "act", {layer, slope}, R"json({"act_type": "prelu"})json");
  const int scale = s.variable("scale", R"json({"__init__": "[\"zero\", {}]"})json"), shift = s.variable("shift");
  s.op("broadcast_add", "sum", {s.op("broadcast_mul", "product", {leaky, scale}), shift});
  const auto result = import(s.json(), {"arg:b"});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->missing_parameters,
            (std::map<std::string, std::string>{{"scale", "which __init__ marks as a parameter"},
                                                {"slope", "which LeakyReLU 'act' reads as its gamma"},
                                                {"w", "which FullyConnected 'fc' reads as its weight"}}));
  const Status refused = check_parameters(*result, {"data", "scale"});
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  for (const char* part :
       {"m-0000.params holds no 'slope', which LeakyReLU 'act' reads as its gamma", "2 are missing: 'slope', 'w'"})
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.to_string();
  EXPECT_TRUE(check_parameters(*result, {"slope", "scale", "w"}).ok()) << "they are given with each request";
}

TEST_F(MxnetImporter, AdvisesToExportWhenGivenGluonsDictionary) {
  Symbol s;
  const int data = s.variable("data"), weight = s.variable("net_weight");
  s.op("elemwise_add", "sum", {data, weight});
  expect_refused(s.json(), StatusCode::kInvalidArgument, {"m-0000.params", "net.export"}, {"features.0.weight"});
}

TEST_F(MxnetImporter, TakesOperatorsThatTestsAdd) {
  if (!find_mxnet_operator("_test_same")) {
    register_mxnet_operator({"_test_same", 1, 1, -1, [](MxnetLowering& lowering) { return lowering.add(ops::kIdentity); }});
  }
  Symbol s;
  s.op("_test_same", "same", {s.variable("data")});
  const auto result = import(s.json());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(describe(result->graph.nodes[0]), "_test_same 'same'");
}

}  // namespace
}  // namespace shoal::worker
