// Inputs that requests bring as the parts of a sparse tensor.
#include <fstream>

#include "tests/unit/worker/engine/engine_fixture.hpp"
#include "worker/engine/model_loader.hpp"

namespace shoal {
namespace {

/// dot(data, w) with w = [1, 2, 3, 4].
constexpr const char* kSymbol = R"json({"nodes": [
  {"op": "null", "name": "data", "attrs": {"__storage_type__": "2"}, "inputs": []},
  {"op": "null", "name": "w", "inputs": []},
  {"op": "dot", "name": "product", "inputs": [[0, 0, 0], [1, 0, 0]]}], "arg_nodes": [0, 1], "heads": [[2, 0, 0]]})json";
constexpr const char* kInputs = "[{name = \"data\", shape = [-1, 4]}]";

template <typename T>
Tensor numbers(const std::vector<T>& values) {
  Tensor tensor =
      Tensor::create(sizeof(T) == 4 ? DType::kInt32 : DType::kInt64, {static_cast<std::int64_t>(values.size())}).value();
  std::ranges::copy(values, tensor.values<T>().begin());
  return tensor;
}

using Long = std::vector<std::int64_t>;

class SparseInputs : public EngineTest {
 protected:
  Result<Engine> load(const std::string& sparse, const std::string& inputs = kInputs) {
    test::write_graph(directory_ / "csr", "net", kSymbol, inputs, {{"w", {1, 2, 3, 4}}});
    std::ofstream(directory_ / "csr" / "model.toml", std::ios::app) << '\n' << sparse << '\n';
    return Engine::load(directory_ / "csr", {.tuning_ms = 0});
  }
  static Result<Tensors> run(Engine& engine, const std::vector<float>& values, const Long& indptr, const Long& indices) {
    return engine.run({{"data.values", tensor_of({static_cast<std::int64_t>(values.size())}, values)},
                       {"data.indptr", numbers(indptr)},
                       {"data.indices", numbers(indices)}});
  }
  static void expect_refused(const Result<Tensors>& outputs, const std::vector<std::string>& parts) {
    ASSERT_FALSE(outputs.ok());
    EXPECT_EQ(outputs.status().code(), StatusCode::kInvalidArgument);
    for (const std::string& part : parts)
      EXPECT_NE(outputs.status().message().find(part), std::string::npos) << outputs.status().to_string();
  }
  static std::vector<float> floats(const Result<Tensors>& outputs) {
    if (!outputs.ok()) return {};
    const auto values = outputs->front().tensor.values<const float>();
    return {values.begin(), values.end()};
  }
};

TEST_F(SparseInputs, AreOrdinaryInputs) {
  Engine engine = load("sparse = {data = \"csr\"}").value();
  const ModelInfo info = engine.describe().value();
  EXPECT_EQ(info.inputs, (std::vector<TensorSpec>{{"data.values", DType::kFloat32, {-1}},
                                                  {"data.indptr", DType::kInt64, {-1}, {{.lowest = 2}}},
                                                  {"data.indices", DType::kInt64, {-1}}}));
  EXPECT_EQ(info.outputs, (std::vector<TensorSpec>{{"product_output", DType::kFloat32, {-1}}}));
  EXPECT_TRUE(engine.warnings().empty()) << engine.warnings()[0];
  EXPECT_EQ(floats(run(engine, {1, 10, 100}, {0, 2, 2, 3}, {0, 3, 1})), (std::vector<float>{41, 0, 200}));
  EXPECT_EQ(floats(run(engine, {}, {0, 0}, {})), std::vector<float>{0});
}

TEST_F(SparseInputs, MayHaveAnyNumberOfValues) {
  Engine engine = load("sparse = {data = \"csr\"}").value();
  for (std::size_t count : {1, 2, 63, 64, 65, 100, 128}) {
    const Long bounds{0, static_cast<std::int64_t>(count)};
    EXPECT_EQ(floats(run(engine, std::vector<float>(count, 1), bounds, Long(count, 2))),
              std::vector<float>{3.F * static_cast<float>(count)});
  }
}

TEST_F(SparseInputs, OfAnyNumberOfValuesRunInFewPrograms) {
  ASSERT_TRUE(load("sparse = {data = \"csr\"}").ok());
  const ModelFiles files = find_model(directory_ / "csr").value();
  const auto loaded = worker::load_model({"net", directory_ / "csr", files.files, read_model_config(files).value()}).value();
  for (std::int64_t count = 1; count < 300; ++count) {
    const std::vector<TensorSpec> inputs{
        {"data.values", DType::kFloat32, {count}}, {"data.indptr", DType::kInt64, {2}}, {"data.indices", DType::kInt64, {count}}};
    ASSERT_TRUE(loaded.model->program(inputs).ok());
  }
  EXPECT_LE(loaded.model->program_counters().compiled, 4u);  // for 64, 128, 256 and 512
}

TEST_F(SparseInputs, WithWrongIndicesAreNamed) {
  Engine engine = load("sparse = {data = \"csr\"}").value();
  const Long good{0, 1};
  expect_refused(run(engine, {1, 2}, {0, 2}, {0, 4}), {"element 1 of 'data.indices' is 4", "columns 0 to 3"});
  expect_refused(run(engine, {1, 2}, {0, 2}, {-1, 0}), {"element 0 of 'data.indices' is -1"});
  expect_refused(run(engine, {1}, {0, 1}, {2147483647}), {"2147483647"});
  expect_refused(run(engine, {1, 2}, {1, 2}, good), {"'data.indptr'", "begins at 0"});
  expect_refused(run(engine, {1, 2}, {0, 2, 1}, good), {"element 2 of 'data.indptr' is 1"});
  expect_refused(run(engine, {1, 2}, {0, 2147483647}, good), {"'data.indptr'", "values"});
  expect_refused(run(engine, std::vector<float>(100, 1), {0, 101}, Long(100)), {"element 100 of 'data.indices' is -1"});
  expect_refused(run(engine, {1, 2}, {0, 2}, {0, 1, 2}), {"indices"});
  expect_refused(run(engine, {1, 2}, {0}, good), {"data.indptr"});
  EXPECT_EQ(floats(run(engine, {1, 2}, {0, 2}, good)), std::vector<float>{5});
}

TEST_F(SparseInputs, MayHaveIndicesOfInt32) {
  Engine engine = load("sparse = {data = \"csr\"}", R"([{name = "data", shape = [-1, 4]},
      {name = "data.indptr", shape = [-1], dtype = "int32"}, {name = "data.indices", shape = [-1], dtype = "int32"}])")
                      .value();
  const auto outputs = engine.run({{"data.values", tensor_of({1}, {5})},
                                   {"data.indptr", numbers<std::int32_t>({0, 1})},
                                   {"data.indices", numbers<std::int32_t>({3})}});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_EQ(floats(outputs), std::vector<float>{20});
}

TEST_F(SparseInputs, MayHaveAStatedNumberOfValues) {
  for (const std::string part : {R"(name = "data.values")", R"(name = "data.indices", dtype = "int64")"}) {
    auto engine = load("sparse = {data = \"csr\"}", R"([{name = "data", shape = [-1, 4]}, {)" + part + ", shape = [2]}]");
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    EXPECT_EQ(floats(run(*engine, {1, 2}, {0, 2}, {0, 1})), std::vector<float>{5});
  }
}

TEST_F(SparseInputs, AreDenseIfTheConfigurationSaysNothing) {
  Engine engine = load("").value();
  EXPECT_EQ(engine.describe().value().inputs, (std::vector<TensorSpec>{{"data", DType::kFloat32, {-1, 4}}}));
  ASSERT_EQ(engine.warnings().size(), 1u);
  EXPECT_NE(engine.warnings()[0].find("sparse = {data = \"csr\"}"), std::string::npos) << engine.warnings()[0];
  EXPECT_EQ(floats(engine.run({{"data", tensor_of({1, 4}, {1, 0, 0, 2})}})), std::vector<float>{9});
}

TEST_F(SparseInputs, ThatAreWrongInTheConfigurationAreRefused) {
  for (const auto& [sparse, inputs, part] : std::vector<std::array<std::string, 3>>{
           {"sparse = {date = \"csr\"}", kInputs, "'date'"},
           {"sparse = {data = \"csr\"}", "[{name = \"data\", shape = [-1, -1]}]", "second without -1"},
           {"sparse = {data = \"row_sparse\"}", kInputs, "first dimension without -1"},
           {"sparse = {data = \"coo\"}", kInputs, "\"csr\" or \"row_sparse\""}}) {
    const auto engine = load(sparse, inputs);
    ASSERT_FALSE(engine.ok()) << sparse;
    EXPECT_NE(engine.status().message().find(part), std::string::npos) << engine.status().to_string();
  }
}

}  // namespace
}  // namespace shoal
