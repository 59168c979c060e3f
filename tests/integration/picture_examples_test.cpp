// The example programs with pictures do what they promise.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/support/checkpoint.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

std::filesystem::path source(const std::string& path) {
  const char* const directory = std::getenv("SHOAL_SOURCE_DIR");
  return std::filesystem::path(directory ? directory : ".") / path;
}

/// What an example prints. It must succeed.
std::string run(const DaemonFixture& daemon, const std::string& example, const std::string& arguments) {
  const std::string command = "SHOAL_DIR=" + daemon.directory() + " " + (binary_directory() / example).string() + " " + arguments;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return text;
}

TEST(PictureExample, AFolderIsClassifiedInItsOrder) {
  const DaemonFixture daemon({.models = {"shapes=" + source("tools/shapes/model").string() + ",workers=2"}});
  const std::string text = run(daemon, "example_classify_folder", "shapes " + source("tools/shapes/pictures").string());
  std::size_t pictures = 0, at = 0;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source("tools/shapes/pictures")))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const std::string line = name + ": " + name.substr(0, name.find('-'));  // star-1.png is a star
    at = text.find(line, at);
    EXPECT_NE(at, std::string::npos) << line << " is not, or not there, in:\n" << text;
    ++pictures;
  }
  EXPECT_GE(pictures, 3u);
}

/// A detector that finds two objects in every picture: 0 * mean(data) + rows.
void write_detector(const std::filesystem::path& directory) {
  write_graph(directory, "ssd", R"json({"nodes": [
    {"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "rows", "inputs": []},
    {"op": "mean", "name": "mean", "attrs": {"axis": "(1, 2, 3)", "keepdims": "True"}, "inputs": [[0, 0, 0]]},
    {"op": "_mul_scalar", "name": "nothing", "attrs": {"scalar": "0"}, "inputs": [[2, 0, 0]]},
    {"op": "Reshape", "name": "flat", "attrs": {"shape": "(-1, 1, 1)"}, "inputs": [[3, 0, 0]]},
    {"op": "Reshape", "name": "table", "attrs": {"shape": "(1, -1, 6)"}, "inputs": [[1, 0, 0]]},
    {"op": "broadcast_add", "name": "detection", "inputs": [[4, 0, 0], [5, 0, 0]]}],
    "arg_nodes": [0, 1], "heads": [[6, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})json",
              "[{name = \"data\", shape = [-1, 3, 32, 32]}]\n[preprocess]\npreset = \"mxnet-ssd\"",
              {{"rows", {1, 0.75f, 0.25f, 0.5f, 0.75f, 1, -1, 0.99f, 0, 0, 1, 1, 0, 0.875f, 0, 0, 0.5f, 0.5f}}});
  std::ofstream(directory / "synset.txt") << "cat\ndog\n";
}

TEST(PictureExample, BoxesAreDrawn) {
  const ScratchDirectory files;
  write_detector(files.path("ssd"));
  const DaemonFixture daemon({.models = {"ssd=" + files.path("ssd")}});
  const std::string picture = source("tools/shapes/pictures/star-1.png").string(), drawn = files.path("boxes.png");
  const std::string text = run(daemon, "example_detect", "ssd " + picture + " " + drawn);
  EXPECT_TRUE(says(text, {"cat 0.88: (0, 0)", "dog 0.75: ("}));
  EXPECT_LT(text.find("cat"), text.find("dog"));
  EXPECT_GT(std::filesystem::file_size(drawn), 100u);
}

}  // namespace
}  // namespace shoal::test
