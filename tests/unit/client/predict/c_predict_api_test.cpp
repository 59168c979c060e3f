// What each function of the C predict API promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "shm/tensor/floats.hpp"
#include "tests/support/child_process.hpp"
#include "tests/unit/client/predict/predict_fixture.hpp"

namespace shoal::test {
namespace {

const InputShapes& one_row() {
  static const InputShapes shapes{{"data", {1, 4}}};
  return shapes;
}

PredictorPtr create_with_types(const Checkpoint& model, const InputShapes& inputs, std::vector<const char*> names,
                               std::vector<int> types) {
  PredictorHandle handle = nullptr;
  MXPredCreateEx(model.symbol.c_str(), model.params.data(), static_cast<int>(model.params.size()), 1, 0, inputs.count(),
                 inputs.keys(), inputs.indptr(), inputs.data(), static_cast<std::uint32_t>(names.size()), names.data(),
                 types.data(), &handle);
  return PredictorPtr(handle);
}

/// The sealed segments of packed weights that this process maps.
std::size_t mapped_weights() {
  std::set<std::string> inodes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string addresses, access, offset, device, inode, path;
    fields >> addresses >> access >> offset >> device >> inode >> path;
    if (path.starts_with("/memfd:")) inodes.insert(inode);
  }
  return inodes.size();
}

TEST(CPredictApi, RunsTheModelAndGivesItsOutputs) {
  const PredictorPtr predictor = create(decimal(), one_row());
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
  EXPECT_EQ(ask(predictor, {0, 0, 0, 1}), (std::vector<float>{1, 1, 1, 1001}));
}

TEST(CPredictApi, TheMemoryOfTheArgumentsIsNotNeededAfterwards) {
  auto model = std::make_unique<Checkpoint>(decimal());
  auto shapes = std::make_unique<InputShapes>(std::initializer_list<std::pair<std::string, Sizes>>{{"data", {1, 4}}});
  const PredictorPtr predictor = create(*model, *shapes);
  std::ranges::fill(model->symbol, 'x');
  std::ranges::fill(model->params, 'x');
  model.reset();
  shapes.reset();
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
  const PredictorPtr larger = reshape(predictor, {{"data", {2, 4}}});  // compiles another program from the same weights
  ASSERT_TRUE(larger) << MXGetLastError();
  EXPECT_EQ(ask(larger, {1, 2, 3, 4, 0, 0, 0, 1}), (std::vector<float>{2, 21, 301, 4001, 1, 1, 1, 1001}));
}

// Not so in MXNet, whose predictors have a copy each.
TEST(CPredictApi, PredictorsOfEqualBytesShareTheWeights) {
  const std::size_t before = mapped_weights();
  std::vector<PredictorPtr> equal;
  std::vector<std::uint32_t> rows;
  for (std::uint32_t i = 0; i < 16; ++i) {
    const Checkpoint copy = decimal();  // in other memory, which is gone before the next one is made
    rows.push_back(1 + i % 3);
    equal.push_back(create(copy, {{"data", {rows.back(), 4}}}));
  }
  equal.push_back(reshape(equal.front(), {{"data", {5, 4}}}));
  rows.push_back(5);
  EXPECT_EQ(mapped_weights(), before + 1) << "whatever their shapes";
  std::vector<std::vector<float>> data;
  for (std::size_t i = 0; i < equal.size(); ++i) {
    data.emplace_back(rows[i] * 4, static_cast<float>(i));
    set(equal[i], "data", data[i]);
  }
  for (std::size_t i = 0; i < equal.size(); ++i) {
    forward(equal[i]);
    const auto value = static_cast<float>(i);
    const std::vector<float> answer = output_of(equal[i]);
    ASSERT_EQ(answer.size(), data[i].size());
    EXPECT_EQ(std::vector<float>(answer.begin(), answer.begin() + 4), decimal_of({value, value, value, value})) << "never inputs";
  }

  Checkpoint other_weights = decimal();
  other_weights.params = params_of("arg:factor", {2, 2, 2, 2});
  Checkpoint other_symbol = decimal();
  other_symbol.symbol.replace(other_symbol.symbol.find("_plus_scalar"), 12, "_minus_scalar");
  const PredictorPtr weights = create(other_weights, one_row()), symbol = create(other_symbol, one_row());
  const PredictorPtr part = create_partial(decimal(), one_row(), {"scaled"});
  const PredictorPtr same_part = create_partial(decimal(), {{"data", {2, 4}}}, {"scaled"});
  const PredictorPtr doubles = create_with_types(decimal(), one_row(), {"data"}, {0});
  EXPECT_EQ(mapped_weights(), before + 4);
  EXPECT_EQ(ask(weights, {1, 2, 3, 4}), (std::vector<float>{3, 5, 7, 9}));
  EXPECT_EQ(ask(symbol, {1, 2, 3, 4}), (std::vector<float>{0, 19, 299, 3999}));
  EXPECT_EQ(ask(part, {1, 2, 3, 4}), (std::vector<float>{1, 20, 300, 4000}));
  EXPECT_EQ(ask(doubles, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
  const PredictorPtr last = std::move(equal.back());
  equal.clear();
  EXPECT_EQ(mapped_weights(), before + 4);
  EXPECT_EQ(ask(last, std::vector<float>(20, 1))[3], 1001) << "the others are freed";
}

TEST(CPredictApi, TheLastPredictorFreesTheWeights) {
  const std::size_t before = mapped_weights();
  for (int round = 0; round < 3; ++round) {
    PredictorPtr first = create(decimal(), one_row()), second = create(decimal(), one_row());
    EXPECT_EQ(mapped_weights(), before + 1);
    first.reset();
    EXPECT_EQ(ask(second, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
    second.reset();
    EXPECT_EQ(mapped_weights(), before);
  }
}

TEST(CPredictApi, ShapesAndTypesAreKnownBeforeTheFirstRun) {
  const PredictorPtr predictor = create_partial(decimal(), {{"data", {3, 4}}}, {"scaled", "plus"});
  ASSERT_TRUE(predictor) << MXGetLastError();
  std::uint32_t *first = nullptr, *second = nullptr, rank = 0;
  ASSERT_EQ(MXPredGetOutputShape(predictor.get(), 0, &first, &rank), 0);
  ASSERT_EQ(MXPredGetOutputShape(predictor.get(), 1, &second, &rank), 0);
  EXPECT_EQ((Sizes{first, first + 2}), (Sizes{3, 4})) << "the second call leaves it";
  EXPECT_EQ((Sizes{second, second + rank}), (Sizes{3, 4}));
  EXPECT_EQ(type_of(predictor), 0);
}

TEST(CPredictApi, InputsAreZerosAtFirstAndKeepTheirValues) {
  const PredictorPtr predictor = create(sum(), {{"a", {2}}, {"b", {2}}});
  forward(predictor);
  EXPECT_EQ(output_of(predictor), (std::vector<float>{0, 0}));
  set<float>(predictor, "a", {1, 2});
  set<float>(predictor, "b", {10, 20});
  forward(predictor);
  EXPECT_EQ(output_of(predictor), (std::vector<float>{11, 22}));
  set<float>(predictor, "a", {5, 5});
  EXPECT_EQ(output_of(predictor), (std::vector<float>{11, 22})) << "outputs are those of the last run";
  forward(predictor);
  EXPECT_EQ(output_of(predictor), (std::vector<float>{15, 25}));
}

TEST(CPredictApi, ThereAreNoOutputsBeforeARun) {
  const PredictorPtr predictor = create(decimal(), one_row());
  std::vector<float> room(4);
  EXPECT_EQ(MXPredGetOutput(predictor.get(), 0, room.data(), 4), -1);
  EXPECT_TRUE(error_says({"MXPredGetOutput", "plus_output", "MXPredForward"}));
}

TEST(CPredictApi, PartialOutputsAreNodesInTheGivenOrder) {
  const PredictorPtr predictor = create_partial(decimal(), one_row(), {"plus", "scaled"});
  ASSERT_TRUE(predictor) << MXGetLastError();
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
  EXPECT_EQ(output_of(predictor, 1), (std::vector<float>{1, 20, 300, 4000}));
  EXPECT_FALSE(create_partial(decimal(), one_row(), {"scald"}));
  EXPECT_TRUE(error_says({"MXPredCreatePartialOut", "scald_output", "scaled_output"}));
  const PredictorPtr whole = create_partial(decimal(), one_row(), {});
  ASSERT_TRUE(whole) << MXGetLastError();
  EXPECT_EQ(ask(whole, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
}

// What is left out of the graph may need other inputs.
TEST(CPredictApi, AnInputThatPartialOutputsDoNotNeedMayBeGiven) {
  const Checkpoint model{symbol_of(variable("a") + "," + variable("b") + "," + node("negative", "minus", "[[0, 0, 0]]") + "," +
                                       node("elemwise_add", "add", "[[2, 0, 0], [1, 0, 0]]"),
                                   "[[3, 0, 0]]"),
                         list({}, {})};
  const PredictorPtr predictor = create_partial(model, {{"a", {2}}, {"b", {2}}}, {"minus"});
  ASSERT_TRUE(predictor) << MXGetLastError();
  set<float>(predictor, "a", {1, 2});
  set<float>(predictor, "b", {7, 7});
  forward(predictor);
  EXPECT_EQ(output_of(predictor), (std::vector<float>{-1, -2}));
}

TEST(CPredictApi, InputsOfOtherTypesAreGivenAndReturnedInTheirType) {
  const Checkpoint model{symbol_of(variable("data") + "," + node("_plus_scalar", "plus", "[[0, 0, 0]]", R"("scalar": "1")") +
                                       "," + node("Cast", "cast", "[[1, 0, 0]]", R"("dtype": "int32")"),
                                   "[[1, 0, 0], [2, 0, 0]]"),
                         list({}, {})};
  const InputShapes shapes{{"data", {3}}};
  const PredictorPtr bytes = create_with_types(model, shapes, {"data"}, {3});
  ASSERT_TRUE(bytes) << MXGetLastError();
  int types[3] = {-7, -7, -7};
  ASSERT_EQ(MXPredGetOutputType(bytes.get(), 1, types), 0);
  EXPECT_EQ(types[0], 4) << "int32";
  EXPECT_EQ(types[1], -7) << "one number is written, whatever the index";
  EXPECT_EQ(type_of(bytes, 0), 3) << "uint8";
  set<std::uint8_t>(bytes, "data", {1, 2, 254});
  forward(bytes);
  EXPECT_EQ(output_of<std::uint8_t>(bytes, 0), (std::vector<std::uint8_t>{2, 3, 255}));
  EXPECT_EQ(output_of<std::int32_t>(bytes, 1), (std::vector<std::int32_t>{2, 3, 255}));

  const PredictorPtr halves = create_with_types(model, shapes, {"data", "nothing"}, {2, 1});
  ASSERT_TRUE(halves) << MXGetLastError();
  EXPECT_EQ(type_of(halves, 0), 2);
  using shoal::Half;
  set<Half>(halves, "data", {Half(1), Half(2), Half(-1)});
  forward(halves);
  EXPECT_EQ(output_of<std::int32_t>(halves, 1), (std::vector<std::int32_t>{2, 3, 0}));

  EXPECT_FALSE(create_with_types(model, shapes, {"data"}, {99}));
  EXPECT_TRUE(error_says({"MXPredCreateEx", "provided_arg_dtypes", "99", "data"}));
}

// MXNet's symbols may state a type; its predict API goes by the arguments alone.
TEST(CPredictApi, InputsAreFloat32WhateverTheSymbolStates) {
  const Checkpoint model{symbol_of(R"({"op": "null", "name": "data", "attrs": {"__dtype__": "3"}, "inputs": []},)" +
                                       node("_plus_scalar", "plus", "[[0, 0, 0]]", R"("scalar": "1")"),
                                   "[[1, 0, 0]]"),
                         list({}, {})};
  const PredictorPtr predictor = create(model, {{"data", {2}}});
  EXPECT_EQ(type_of(predictor), 0);
  EXPECT_EQ(ask(predictor, {0.5, 1}), (std::vector<float>{1.5, 2}));
}

TEST(CPredictApi, PredictorsForThreadsShareWeightsAndNothingElse) {
  const std::size_t before = mapped_weights();
  const auto predictors = create_several(decimal(), one_row(), 5);
  ASSERT_EQ(predictors.size(), 5u) << MXGetLastError();
  EXPECT_EQ(mapped_weights(), before + 1);
  for (std::size_t i = 0; i < 5; ++i) set(predictors[i], "data", std::vector<float>(4, static_cast<float>(i)));
  for (const PredictorPtr& predictor : predictors) EXPECT_EQ(shape_of(predictor), (Sizes{1, 4})) << "before the first run";
  for (const PredictorPtr& predictor : predictors) forward(predictor);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto value = static_cast<float>(i);
    EXPECT_EQ(output_of(predictors[i]), decimal_of({value, value, value, value}));
  }
}

TEST(CPredictApi, TheLastPredictorOfAModelFreesItsWeights) {
  const std::size_t before = mapped_weights();
  auto predictors = create_several(decimal(), one_row(), 3);
  ASSERT_EQ(predictors.size(), 3u);
  PredictorPtr reshaped = reshape(predictors[0], {{"data", {2, 4}}});
  predictors.clear();
  EXPECT_EQ(mapped_weights(), before + 1);
  EXPECT_EQ(ask(reshaped, {1, 2, 3, 4, 1, 2, 3, 4}).size(), 8u);
  reshaped.reset();
  EXPECT_EQ(mapped_weights(), before);
}

TEST(CPredictApi, AReshapedPredictorIsIndependentOfTheOldOne) {
  PredictorPtr old = create(decimal(), one_row());
  ask(old, {1, 2, 3, 4});
  const PredictorPtr reshaped = reshape(old, {{"data", {2, 4}}});
  ASSERT_TRUE(reshaped) << MXGetLastError();
  EXPECT_EQ(shape_of(reshaped), (Sizes{2, 4}));
  EXPECT_EQ(ask(reshaped, {9, 9, 9, 9, 0, 0, 0, 0}), (std::vector<float>{10, 91, 901, 9001, 1, 1, 1, 1}));
  EXPECT_EQ(output_of(old), (std::vector<float>{2, 21, 301, 4001}));
  forward(old);
  EXPECT_EQ(output_of(old), (std::vector<float>{2, 21, 301, 4001})) << "its input is its own, too";
  old.reset();
  EXPECT_EQ(ask(reshaped, {0, 0, 0, 0, 1, 1, 1, 1}), (std::vector<float>{1, 1, 1, 1, 2, 11, 101, 1001}));
}

TEST(CPredictApi, InputsThatKeepTheirShapeKeepTheirValuesInAReshapedPredictor) {
  const Checkpoint model{
      symbol_of(variable("a") + "," + variable("b") + "," + node("broadcast_add", "add", "[[0, 0, 0], [1, 0, 0]]"),
                "[[2, 0, 0]]"),
      list({}, {})};
  const PredictorPtr old = create(model, {{"a", {1, 2}}, {"b", {1, 2}}});
  set<float>(old, "a", {1, 2});
  set<float>(old, "b", {10, 20});
  const PredictorPtr reshaped = reshape(old, {{"a", {2, 2}}});
  ASSERT_TRUE(reshaped) << MXGetLastError();
  set<float>(old, "b", {0, 0});
  forward(reshaped);
  EXPECT_EQ(output_of(reshaped), (std::vector<float>{10, 20, 10, 20})) << "a is zeros, b what it was";
}

TEST(CPredictApi, AReshapeThatDoesNotFitIsNamed) {
  const PredictorPtr predictor = create(decimal(), one_row());
  EXPECT_FALSE(reshape(predictor, {{"data", {1, 3}}}));
  EXPECT_TRUE(error_says({"MXPredReshape", "scaled", "1x3"}));
  EXPECT_FALSE(reshape(predictor, {{"dato", {1, 4}}}));
  EXPECT_TRUE(error_says({"MXPredReshape", "dato", "data"}));
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
}

// The loop that MXNet's header shows.
TEST(CPredictApi, PartialForwardRunsAllAtStepZero) {
  const PredictorPtr predictor = create(decimal(), one_row());
  set<float>(predictor, "data", {1, 2, 3, 4});
  int left = 1, steps = 0;
  for (int step = 0; left != 0; ++step, ++steps) ASSERT_EQ(MXPredPartialForward(predictor.get(), step, &left), 0);
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(output_of(predictor), (std::vector<float>{2, 21, 301, 4001}));
  set<float>(predictor, "data", {0, 0, 0, 0});
  left = 7;
  EXPECT_EQ(MXPredPartialForward(predictor.get(), 5, &left), 0);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(output_of(predictor), (std::vector<float>{2, 21, 301, 4001})) << "later steps do nothing";
  EXPECT_EQ(MXPredPartialForward(predictor.get(), -1, &left), -1);
  EXPECT_TRUE(error_says({"MXPredPartialForward", "step", "-1"}));
}

TEST(CPredictApi, AShapeThatDependsOnDataIsKnownAfterARun) {
  const Checkpoint model{
      symbol_of(variable("data") + "," + variable("mask") + "," + node("_contrib_boolean_mask", "kept", "[[0, 0, 0], [1, 0, 0]]"),
                "[[2, 0, 0]]"),
      list({}, {})};
  const PredictorPtr predictor = create(model, {{"data", {3, 1}}, {"mask", {3}}});
  std::uint32_t* shape = nullptr;
  std::uint32_t rank = 0;
  EXPECT_EQ(MXPredGetOutputShape(predictor.get(), 0, &shape, &rank), -1);
  EXPECT_TRUE(error_says({"kept_output", "depends on data", "MXPredForward"}));
  EXPECT_EQ(type_of(predictor), 0);
  set<float>(predictor, "mask", {1, 0, 1});
  EXPECT_EQ(ask(predictor, {4, 5, 6}), (std::vector<float>{4, 6}));
  EXPECT_EQ(shape_of(predictor), (Sizes{2, 1}));
  set<float>(predictor, "mask", {0, 1, 0});
  EXPECT_EQ(ask(predictor, {4, 5, 6}), (std::vector<float>{5}));
  set<float>(predictor, "mask", {1, 1, 1});
  EXPECT_EQ(ask(predictor, {4, 5, 6}), (std::vector<float>{4, 5, 6}));
}

TEST(CPredictApi, LabelsMayBeGivenAndSet) {
  const Checkpoint model{symbol_of(variable("data") + "," + variable("softmax_label") + "," +
                                       node("SoftmaxOutput", "softmax", "[[0, 0, 0], [1, 0, 0]]"),
                                   "[[2, 0, 0]]"),
                         list({}, {})};
  for (const bool gives_label : {false, true}) {
    InputShapes shapes{{"data", {2, 2}}};
    if (gives_label) shapes.add("softmax_label", {2});
    const PredictorPtr predictor = create(model, shapes);
    set<float>(predictor, "softmax_label", {1, 0});
    EXPECT_EQ(ask(predictor, {3, 3, 3, 3}), (std::vector<float>{0.5, 0.5, 0.5, 0.5}));
    const PredictorPtr reshaped = reshape(predictor, {{"data", {1, 2}}, {"softmax_label", {1}}});
    ASSERT_TRUE(reshaped) << MXGetLastError();
    EXPECT_EQ(ask(reshaped, {3, 3}), (std::vector<float>{0.5, 0.5}));
  }
}

TEST(CPredictApi, NamesThatTheSymbolDoesNotHaveMayHaveAShape) {
  const PredictorPtr predictor = create(decimal(), {{"data", {1, 4}}, {"softmax_label", {1}}, {"factor", {4}}});
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
  EXPECT_TRUE(reshape(predictor, {{"data", {2, 4}}, {"softmax_label", {2}}})) << MXGetLastError();
  const float value = 0;
  for (const char* name : {"softmax_label", "factor"}) {
    EXPECT_EQ(MXPredSetInput(predictor.get(), name, &value, 1), -1) << "as with MXNet";
    EXPECT_TRUE(error_says({"MXPredSetInput", name, "data"}));
  }
  EXPECT_FALSE(try_create(decimal(), {{"data", {1, 4}}, {"factor", {5}}}));
  EXPECT_TRUE(error_says({"factor", "parameter", "4", "5"}));
}

TEST(CPredictApi, MissingParametersAndShapesAreNamed) {
  const Checkpoint without{decimal().symbol, list({}, {})};
  EXPECT_FALSE(try_create(without, one_row()));
  EXPECT_TRUE(error_says({"factor"}));
  const Checkpoint layer{
      symbol_of(variable("data") + "," + variable("fc_weight") + "," +
                    node("FullyConnected", "fc", "[[0, 0, 0], [1, 0, 0]]", R"("num_hidden": "2", "no_bias": "True")"),
                "[[2, 0, 0]]"),
      list({}, {})};
  EXPECT_FALSE(try_create(layer, one_row()));
  EXPECT_TRUE(error_says({"param_bytes", "fc_weight", "FullyConnected 'fc'", "weight"}));
  EXPECT_FALSE(try_create(decimal(), {}));
  EXPECT_TRUE(error_says({"data", "input_keys"}));
}

TEST(CPredictApi, EachThreadHasItsOwnLastError) {
  EXPECT_EQ(MXPredForward(nullptr), -1);
  const std::string here = MXGetLastError();
  std::thread([] {
    EXPECT_STREQ(MXGetLastError(), "");
    EXPECT_EQ(MXNDListGet(nullptr, 0, nullptr, nullptr, nullptr, nullptr), -1);
    EXPECT_TRUE(error_says({"MXNDListGet"}));
  }).join();
  EXPECT_EQ(MXGetLastError(), here);
  EXPECT_TRUE(create(decimal(), one_row()));
  EXPECT_EQ(MXGetLastError(), here) << "success leaves it";
}

TEST(CPredictApi, AGpuIsTheCpuAndSaysSoOnce) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    const PredictorPtr predictor = try_create(decimal(), one_row(), 2);
    ASSERT_TRUE(predictor) << MXGetLastError();
    EXPECT_EQ(ask(predictor, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(says(said, {"libshoal_predict", "GPU", "CPU"}));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1);
  EXPECT_TRUE(try_create(decimal(), one_row(), 3)) << "pinned memory is the CPU's";
  EXPECT_FALSE(try_create(decimal(), one_row(), 7));
  EXPECT_TRUE(error_says({"dev_type", "7"}));
}

TEST(CPredictApi, AForkedChildIsToldToMakeItsOwn) {
  const PredictorPtr predictor = create(decimal(), one_row());
  const int code = exit_code_of([&] {
    const bool refused = MXPredForward(predictor.get()) == -1 && error_says({"forked", "after fork"});
    const bool reshapes = static_cast<bool>(reshape(predictor, {{"data", {2, 4}}}));
    const PredictorPtr own = create(decimal(), one_row());
    return refused && !reshapes && ask(own, {1, 2, 3, 4}) == std::vector<float>{2, 21, 301, 4001} ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
}

}  // namespace
}  // namespace shoal::test
