#include "shm/model/model_config.hpp"

#include <gtest/gtest.h>

#include "shm/base/format.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

using test::says;
using test::ScratchDirectory;

std::string error_of(const std::string& text) {
  const auto config = parse_model_config(text, "m/model.toml");
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << text;
  return config.status().message();
}

TEST(ModelConfig, ReadsEveryKey) {
  const auto config = parse_model_config(R"(
inputs = [{name = "data", shape = [-1, 3, 8, 8], dtype = "uint8", layout = "NCHW"}]
outputs = ["prob"]
labels = "names.txt"
shapes = [{data = [1, 3, 8, 8]}, {data = [4, 3, 8, 8]}]
device = "cpu-reference"
precision = "f32-fast"
fallback = "error"
tuning_ms = 0
workers = 4
contexts = 2
threads = 3
queue_limit = 5
import_mb = 64
timeout_ms = 0
[preprocess]
resize = 9
crop = [7, 8]
order = "BGR"
mean = [1, 2.5, 3]
scale = 0.5
)",
                                         "model.toml");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->inputs, (std::vector<TensorSpec>{{"data", DType::kUInt8, {-1, 3, 8, 8}, {}, "NCHW"}}));
  EXPECT_EQ(config->outputs, std::vector<std::string>{"prob"});
  EXPECT_EQ(config->labels_file, "names.txt");
  ASSERT_EQ(config->shapes.size(), 2u);
  EXPECT_EQ(config->shapes[1][0].shape, Shape({4, 3, 8, 8}));
  EXPECT_EQ(config->device, "cpu-reference");
  EXPECT_EQ(config->precision, "f32-fast");
  EXPECT_EQ(config->fallback, "error");
  EXPECT_EQ(config->tuning_ms, 0);
  EXPECT_EQ(config->workers, 4);
  EXPECT_EQ(config->contexts, 2);
  EXPECT_EQ(config->threads, 3);
  EXPECT_EQ(config->queue_limit, 5);
  EXPECT_EQ(config->import_mb, 64);
  EXPECT_EQ(config->timeout_ms, 0u);
  ASSERT_TRUE(config->preprocess);
  EXPECT_EQ(config->preprocess->resize, 9);
  EXPECT_EQ(config->preprocess->crop_height, 7);
  EXPECT_EQ(config->preprocess->crop_width, 8);
  EXPECT_EQ(config->preprocess->order, "BGR");
  EXPECT_EQ(config->preprocess->mean, (std::vector<float>{1, 2.5f, 3}));
  EXPECT_EQ(config->preprocess->scale, (std::vector<float>{0.5f, 0.5f, 0.5f}));
}

TEST(ModelConfig, NamesAnUnknownKeyItsFileAndItsLine) {
  EXPECT_TRUE(says(error_of("workers = 1\nwrokers = 2\n"), {"m/model.toml:2:", "'wrokers'", "workers"}));
  EXPECT_TRUE(says(error_of("\n[preprocess]\n\nblur = 2\n"), {"m/model.toml:4:", "preprocess.blur"}));
  EXPECT_TRUE(says(error_of("inputs = [{name = \"d\", shape = [1], size = 3}]"), {"m/model.toml:1:", "inputs.size"}));
}

TEST(ModelConfig, RefusesWrongTypesAndNumbersOutOfRange) {
  for (const char* text : {"workers = 0",
                           "workers = \"4\"",
                           "workers = 1.5",
                           "contexts = 65",
                           "timeout_ms = -1",
                           "device = 3",
                           "precision = \"f16\"",
                           "fallback = \"gpu\"",
                           "tuning_ms = -1",
                           "tuning_ms = 120001",  // three times as long must fit into the time for loading
                           "inputs = 3",
                           "inputs = [{name = \"d\"}]",
                           "inputs = [{shape = [1]}]",
                           "inputs = [{name = \"d\", shape = [-2]}]",
                           "inputs = [{name = \"d\", shape = [1,1,1,1,1,1,1,1,1]}]",
                           "inputs = [{name = \"d\", shape = [1], dtype = \"float\"}]",
                           "inputs = [{name = \"d\", shape = [1, 2], layout = \"NCHW\"}]",
                           "inputs = [{name = \"d\", shape = [1]}, {name = \"d\", shape = [1]}]",
                           "shapes = [{d = [-1, 3]}]",
                           "shapes = [{d = [\"1..2\", 3]}]",
                           "inputs = [{name = \"d\", shape = [\"640..224\"]}]",
                           "inputs = [{name = \"d\", shape = [\"many\"]}]",
                           "cache_mb = -1",
                           "buckets = 4",
                           "buckets = []",
                           "buckets = [4, 2]",
                           "buckets = [0, 2]",
                           "buckets = [{dim = 1, sizes = [4]}]",
                           "buckets = [{input = \"d\", dim = 0, sizes = [4]}]",
                           "buckets = [{input = \"d\", dim = 1}]",
                           "buckets = [{input = \"d\", dim = 1, sizes = [4], crop = {p = -1}}]",
                           "buckets = [{batch = [4]}, {batch = [8]}]",
                           "buckets = [{input = \"d\", dim = 1, sizes = [4]}, {input = \"d\", dim = 1, sizes = [8]}]",
                           "shapes = [{}]",
                           "state = {out = \"o\", in = \"i\"}",
                           "state = [\"o\"]",
                           "state = [{out = \"o\"}]",
                           "state = [{out = \"o\", in = \"\"}]",
                           "state = [{out = \"o\", in = \"i\", shape = [\"1..2\"]}]",
                           "state = [{out = \"o\", in = \"i\"}, {out = \"o\", in = \"j\"}]",
                           "state = [{out = \"o\", in = \"i\"}, {out = \"p\", in = \"i\"}]",
                           "[preprocess]\norder = \"RBG\"",
                           "[preprocess]\nmean = [1, 2]",
                           "[preprocess]\npreset = \"imagnet\"",
                           "[preprocess]\ncrop = [1, 2, 3]",
                           "[preprocess]\nletterbox = 1",
                           "[preprocess]\nletterbox = true\nborder = 256",
                           "[preprocess]\nletterbox = true\nresize = 256",
                           "workers = "}) {
    EXPECT_TRUE(says(error_of(text), {"m/model.toml:"}));
  }
}

TEST(ModelConfig, RefusesListsThatAreTooLong) {
  const auto is_limited = [](const std::string& key, std::size_t most, const std::string& before, const std::string& entry,
                             const std::string& after) {
    const auto list = [&](std::size_t count) {
      std::string text = before;
      for (std::size_t i = 1; i <= count; ++i) {
        text += i == 1 ? "" : ", ";
        text += entry;
        text.replace(text.rfind('#'), 1, std::to_string(i));
      }
      return text + after;
    };
    const Status longest = parse_model_config(list(most), "m").status();
    EXPECT_TRUE(longest.ok()) << longest.to_string();
    const auto refused = parse_model_config(list(most + 1), "m/model.toml");
    EXPECT_TRUE(says(refused.status().message(), {"m/model.toml:1:", "'" + key + "'", std::to_string(most + 1) + " entries",
                                                  "at most " + std::to_string(most)}));
  };
  is_limited("inputs", 4096, "inputs = [", "{name = \"d#\", shape = []}", "]");
  is_limited("outputs", 4096, "outputs = [", "\"o#\"", "]");
  is_limited("shapes", 4096, "shapes = [", "{d = [#]}", "]");
  is_limited("shapes", 4096, "shapes = [{", "d# = [1]", "}]");
  is_limited("buckets", 4096, "buckets = [", "#", "]");
  is_limited("buckets", 4096, "buckets = [", "{input = \"d#\", dim = 1, sizes = [4]}", "]");
  is_limited("buckets.crop", 4096, "buckets = [{input = \"d\", dim = 1, sizes = [4], crop = {", "o# = 1", "}}]");
  is_limited("versions", 256, "versions = [", "#", "]");
}

TEST(ModelConfig, ReadsRangesAndBuckets) {
  const auto config = parse_model_config(
      "inputs = [{name = \"d\", shape = [-1, 3, \"224..640\", \"1..\"]}]\n"
      "buckets = [{batch = [1, 4]}, {input = \"d\", dim = 2, sizes = [256, 640], crop = {map_output = 1}}]\n",
      "m");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->inputs[0].shape, (Shape{-1, 3, -1, -1}));
  EXPECT_EQ(config->inputs[0].ranges[2], (DimRange{224, 640}));
  EXPECT_EQ(config->inputs[0].ranges[3], (DimRange{.lowest = 1}));
  EXPECT_EQ(config->buckets, (std::vector<Buckets>{{.sizes = {1, 4}},
                                                   {.input = "d", .dim = 2, .sizes = {256, 640}, .crop = {{"map_output", 1}}}}));
  EXPECT_EQ(parse_model_config("buckets = [1, 2, 8]", "m").value().buckets, (std::vector<Buckets>{{.sizes = {1, 2, 8}}}));
  EXPECT_TRUE(says(error_of("inputs = [{name = \"d\", shape = [\"9..2\"]}]"), {"m/model.toml:1:", "inputs.shape", "9..2"}));
}

TEST(ModelConfig, ReadsThePairsOfAState) {
  const auto config = parse_model_config(
      "state = [{out = \"h_output\", in = \"h_in\", shape = [2, -1, 8]}, {out = \"c_output\", in = \"c_in\"}]", "m");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->state, (std::vector<StatePair>{{"h_output", "h_in", {2, -1, 8}}, {"c_output", "c_in"}}));
  const auto batches = parse_model_config(
      "inputs = [{name = \"h\", shape = [-1, 2], layout = \"NC\"}, {name = \"d\", shape = [-1, -1], layout = \"TN\"}]\n"
      "state = [{out = \"o\", in = \"h\"}, {out = \"p\", in = \"i\", batch_axis = 2}, {out = \"q\", in = \"j\", batch_input = "
      "\"e\"}]",
      "m");
  ASSERT_TRUE(batches.ok()) << batches.status().to_string();
  EXPECT_EQ(batches->state,
            (std::vector<StatePair>{
                {"o", "h", Shape::any(), "d", 1}, {"p", "i", Shape::any(), "", 2}, {"q", "j", Shape::any(), "e", 0}}));
  EXPECT_TRUE(says(error_of("state = [{out = \"o\", in = \"i\", batch_axis = -1}]"), {"state.batch_axis"}));
  EXPECT_TRUE(says(error_of("\nstate = [{out = \"o\", in = \"i\", size = 1}]"), {"m/model.toml:2:", "state.size", "shape"}));
  EXPECT_TRUE(says(error_of("state = [{out = \"o\", in = \"i\"}, {out = \"o\", in = \"j\"}]"), {"'state'", "'o' twice"}));
}

TEST(ModelConfig, LetsKeysChangeAPresetWhereverTheyStand) {
  const auto config = parse_model_config("[preprocess]\ncrop = 64\npreset = \"imagenet-bgr-caffe\"\n", "m");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->preprocess->crop_width, 64);
  EXPECT_EQ(config->preprocess->resize, 256);
  EXPECT_EQ(config->preprocess->mean, (std::vector<float>{104, 117, 123}));
  const auto unknown = preprocess_preset("imagnet");
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(says(unknown.status().message(), {"imagenet, imagenet-bgr-caffe, cifar10, mnist, none"}));
}

TEST(ModelConfig, ALetterboxTakesThePlaceOfAPresetsResize) {
  const auto config =
      parse_model_config("[preprocess]\npreset = \"imagenet\"\ncrop = 416\nletterbox = true\nborder = 114\n", "m");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(config->preprocess->letterbox);
  EXPECT_EQ(config->preprocess->border, 114);
  EXPECT_EQ(config->preprocess->resize, 0);
  EXPECT_EQ(config->preprocess->crop_height, 416);
  EXPECT_TRUE(
      says(error_of("[preprocess]\nresize = 9\nletterbox = true"), {"m/model.toml:2:", "preprocess.resize", "letterbox"}));
}

TEST(ModelConfig, GivesGrayPicturesOneChannel) {
  const auto config = parse_model_config("[preprocess]\norder = \"GRAY\"\nscale = 2\n", "m");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->preprocess->mean, std::vector<float>{0});
  EXPECT_EQ(config->preprocess->scale, std::vector<float>{2});
}

TEST(ModelConfig, ReadsTheCompanionFileOnlyWithoutModelToml) {
  const ScratchDirectory files;
  files.write("net-symbol.json");
  files.write("net-0000.params");
  files.write("net-shapes.json", R"([{"name": "data", "shape": [100, 1, 28, 28]}])");
  auto config = read_model_config(find_model(files.path("net")).value());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  const std::vector<TensorSpec> as_trained{{"data", DType::kFloat32, {100, 1, 28, 28}}};
  EXPECT_EQ(config->shapes, (std::vector<std::vector<TensorSpec>>{as_trained}));
  EXPECT_EQ(config->inputs, (std::vector<TensorSpec>{{"data", DType::kFloat32, {-1, 1, 28, 28}}}));
  files.write("model.toml", "workers = 2");
  config = read_model_config(find_model(files.path("net")).value());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(config->inputs.empty());
  EXPECT_EQ(config->workers, 2);
}

// MXNet writes 0 for a dimension that it does not know.
TEST(ModelConfig, TakesA0OfTheCompanionFileForAnOpenDimension) {
  const ScratchDirectory files;
  files.write("net-symbol.json");
  files.write("net-0000.params");
  files.write("net-shapes.json", R"([{"name": "data", "shape": [0, 1, 28, 28]}])");
  const auto config = read_model_config(find_model(files.path("net")).value());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->inputs, (std::vector<TensorSpec>{{"data", DType::kFloat32, {-1, 1, 28, 28}}}));
  EXPECT_TRUE(config->shapes.empty());
}

TEST(ModelConfig, RefusesACompanionFileThatIsNone) {
  for (const char* text : {"", "{", "{}", "[1]", "[{\"name\": 3, \"shape\": []}]", "[{\"name\": \"d\"}]",
                           "[{\"name\": \"d\", \"shape\": [1.5]}]", "[{\"name\": \"d\", \"shape\": [1,1,1,1,1,1,1,1,1]}]"}) {
    const ScratchDirectory files;
    files.write("net-symbol.json");
    files.write("net-0000.params");
    files.write("net-shapes.json", text);
    const auto config = read_model_config(find_model(files.path("net")).value());
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(says(config.status().message(), {"net-shapes.json"}));
  }
}

TEST(ModelConfig, RefusesACompanionFileThatIsTooLong) {
  std::string text = "[";
  for (int i = 1; i <= 4097; ++i) text += format("{}{\"name\": \"d{}\", \"shape\": []}", i == 1 ? "" : ",", i);
  const ScratchDirectory files;
  files.write("net-symbol.json");
  files.write("net-0000.params");
  files.write("net-shapes.json", text + "]");
  const auto config = read_model_config(find_model(files.path("net")).value());
  EXPECT_TRUE(says(config.status().message(), {"net-shapes.json", "4097 inputs", "at most 4096"}));
}

TEST(Labels, KeepTheirNumbers) {
  const ScratchDirectory files;
  files.write("synset.txt", "cat\r\n\ndog\n\n");
  const auto labels = read_labels({.directory = files.path()}, {});
  ASSERT_TRUE(labels.ok());
  EXPECT_EQ(*labels, (std::vector<std::string>{"cat", "", "dog"}));
}

TEST(Labels, MayBeMissingUnlessTheConfigurationNamesThem) {
  const ScratchDirectory files;
  EXPECT_TRUE(read_labels({.directory = files.path()}, {}).value().empty());
  const auto missing = read_labels({.directory = files.path()}, {.labels_file = "names.txt"});
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(says(missing.status().message(), {"names.txt"}));
}

}  // namespace
}  // namespace shoal
