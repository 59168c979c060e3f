#include "worker/zygote/load_message.hpp"

#include <gtest/gtest.h>

#include "shm/wire/control.hpp"

namespace shoal::worker {
namespace {

TEST(LoadMessage, SaysWhatToLoad) {
  const auto source =
      parse_load(
          R"({"name": "net", "path": "/m", "symbol_file": "/m/a-symbol.json", "params_file": "/m/a-0000.params", "device": "cpu-reference",
    "threads": 2, "import_mb": 64, "contexts": 3, "version": 1, "max_batch": 8,
    "memory_mb": 512, "golden": "/m/golden.npz", "golden_tolerance": 0.5, "inputs": [{"name": "data", "dtype": "float32", "shape": [-1, 3]}],
    "shapes": [[{"name": "data", "dtype": "float32", "shape": [4, 3]}]], "build_id": ")" +
          wire::build_id() + "\"}")
          .value();
  EXPECT_EQ(source.name, "net");
  EXPECT_EQ(source.symbol_file, "/m/a-symbol.json");
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
