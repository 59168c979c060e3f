#include "worker/zygote/load_message.hpp"

#include <gtest/gtest.h>

#include "shm/wire/control.hpp"
#include "shm/wire/model_json.hpp"

namespace shoal::worker {
namespace {

TEST(LoadMessage, SaysWhatToLoad) {
  const auto source =
      parse_load(
          R"({"name": "net", "path": "/m", "files": ["/m/a-symbol.json", "/m/a-0000.params"], "outputs": ["a_output"], "device": "cpu-reference",
    "threads": 2, "import_mb": 64, "contexts": 3, "version": 1, "max_batch": 8,
    "memory_mb": 512, "golden": "/m/golden.npz", "golden_tolerance": 0.5, "inputs": [{"name": "data", "dtype": "float32", "shape": [-1, 3]}],
    "shapes": [[{"name": "data", "dtype": "float32", "shape": [4, 3]}]], "build_id": ")" +
          wire::build_id() + "\"}")
          .value();
  EXPECT_EQ(source.name, "net");
  EXPECT_EQ(source.files, (std::vector<std::filesystem::path>{"/m/a-symbol.json", "/m/a-0000.params"}));
  EXPECT_EQ(source.config.outputs, std::vector<std::string>{"a_output"});
  EXPECT_EQ(source.config.device, "cpu-reference");
  EXPECT_EQ(source.config.threads, 2);
  EXPECT_EQ(source.config.import_mb, 64);
  EXPECT_EQ(source.config.max_batch, 8);
  EXPECT_EQ(source.config.memory_mb, 512);
  EXPECT_EQ(source.config.golden_file, "/m/golden.npz");
  EXPECT_EQ(source.config.golden_tolerance, 0.5);
  EXPECT_EQ(source.config.inputs.at(0).shape, (Shape{-1, 3}));
  EXPECT_EQ(source.config.shapes.at(0).at(0).shape, (Shape{4, 3}));
}

/// Whatever of model.toml the zygote needs arrives: a key that one side forgets is lost without a word.
TEST(LoadMessage, CarriesWhatTheSupervisorWasTold) {
  ServedModel model{.name = "net", .path = "/models/net@7", .files = {}, .config = {}, .labels = {}};
  model.files.directory = "/models";
  model.files.files = {"/models/net-symbol.json", "/models/net-0007.params"};
  ModelConfig& sent = model.config;
  sent.inputs = {{"data", DType::kFloat16, {-1, 3, -1}, {{1, 64}, {3, 3}, {32, 224}}, "NCT"}, {"mask", DType::kUInt8, {-1}}};
  sent.outputs = {"layer_output", "prob_output"};
  sent.state = {{"layer_output", "mask", {-1}}, {"prob_output", "data"}};
  sent.sparse = {{"data", "csr"}};
  sent.shapes = {{{"data", DType::kFloat16, {1, 3, 32}}, {"mask", DType::kUInt8, {1}}}, {{"data", DType::kFloat16, {8, 3, 64}}}};
  sent.buckets = {{.sizes = {1, 2, 8}}, {.input = "data", .dim = 2, .sizes = {64, 128}, .crop = {{"prob_output", 1}}}};
  sent.device = "cpu-reference";
  sent.precision = "f32-fast";
  sent.max_error = 0.25;
  sent.golden_file = "golden.npz";
  sent.fallback = "error";
  sent.tuning_ms = 1;
  sent.threads = 2;
  sent.import_mb = 3;
  sent.cache_mb = 4;
  sent.max_batch = 5;
  sent.memory_mb = 6;
  sent.golden_tolerance = 0.5;

  const ModelSource source = parse_load(wire::load_text(model).value()).value();
  EXPECT_EQ(source.name, "net");
  EXPECT_EQ(source.path, "/models/net@7");
  EXPECT_EQ(source.files, model.files.files);
  // All members by name: whoever adds one decides here whether it travels.
  const auto& [inputs, outputs, state, labels_file, preprocess, shapes, buckets, sparse, device, fallback, precision, max_error,
               tuning_ms, workers, contexts, threads, queue_limit, import_mb, cache_mb, timeout_ms, max_batch, max_delay_ms,
               run_limit_ms, quarantine_ms, load_timeout_s, memory_mb, golden_file, golden_tolerance, versions] = source.config;
  EXPECT_EQ(inputs, sent.inputs);
  EXPECT_EQ(outputs, sent.outputs);
  EXPECT_EQ(state, sent.state);
  EXPECT_EQ(sparse, sent.sparse);
  EXPECT_EQ(shapes, sent.shapes);
  EXPECT_EQ(buckets, sent.buckets);
  EXPECT_EQ(device, sent.device);
  EXPECT_EQ(fallback, sent.fallback);
  EXPECT_EQ(precision, sent.precision);
  EXPECT_EQ(max_error, sent.max_error);
  EXPECT_EQ(tuning_ms, sent.tuning_ms);
  EXPECT_EQ(threads, sent.threads);
  EXPECT_EQ(import_mb, sent.import_mb);
  EXPECT_EQ(cache_mb, sent.cache_mb);
  EXPECT_EQ(max_batch, sent.max_batch);
  EXPECT_EQ(memory_mb, sent.memory_mb);
  EXPECT_EQ(golden_file, "/models/golden.npz");
  EXPECT_EQ(golden_tolerance, sent.golden_tolerance);
}

TEST(LoadMessage, AnotherBuildOfTheSupervisorIsRefusedByBothIds) {
  const auto source = parse_load(R"({"name": "net", "path": "x", "build_id": "shoal-0.0-other"})");
  EXPECT_EQ(source.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(source.status().message().find("shoal-0.0-other"), std::string::npos);
  EXPECT_NE(source.status().message().find(wire::build_id()), std::string::npos);
}

TEST(LoadMessage, OtherTextIsAnErrorNotAnException) {
  for (const char* text : {"", "{}", "[]", R"({"name": 1})",
                           R"({"name": "a", "path": "b", "inputs": [{"name": "x", "dtype": "flat", "shape": []}]})"}) {
    EXPECT_EQ(parse_load(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace shoal::worker
