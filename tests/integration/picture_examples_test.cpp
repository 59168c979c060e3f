// The example programs with pictures do what they promise.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

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

struct Said {
  int exit_code = -1;
  std::string out, err;
};

/// What an example prints.
Said run(const DaemonFixture& daemon, const std::string& example, const std::string& arguments) {
  const ScratchDirectory files;
  const std::string command = "SHOAL_DIR=" + daemon.directory() + " " + (binary_directory() / example).string() + " " +
                              arguments + " >" + files.path("out") + " 2>" + files.path("err");
  const int status = std::system(command.c_str());
  const auto text = [&](const std::string& name) {
    std::ifstream file(files.path(name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text("out"), text("err")};
}

TEST(PictureExample, AFolderIsClassifiedInItsOrder) {
  const DaemonFixture daemon({.models = {"shapes=" + source("tools/shapes/model").string() + ",workers=2"}});
  const auto [code, text, errors] = run(daemon, "example_classify_folder", "shapes " + source("tools/shapes/pictures").string());
  EXPECT_EQ(code, 0) << errors;
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

TEST(PictureExample, ADamagedPictureOfAFolderIsNamedAndOthersGoOn) {
  const DaemonFixture daemon({.models = {"shapes=" + source("tools/shapes/model").string()}});
  const ScratchDirectory files;
  std::ofstream(files.path("bad.png")) << "nothing";
  std::ofstream(files.path("SOURCE.md")) << "no picture";
  std::filesystem::copy(source("tools/shapes/pictures/star-1.png"), files.path("star.PNG"));
  const Said some = run(daemon, "example_classify_folder", "shapes " + files.path(""));
  EXPECT_EQ(some.exit_code, 1);
  EXPECT_TRUE(some.out.starts_with("star.PNG: star (")) << some.out;
  EXPECT_EQ(std::ranges::count(some.out, '\n'), 1) << some.out;
  EXPECT_TRUE(some.err.starts_with("bad.png: ") && says(some.err, {"cannot be decoded"})) << some.err;
  EXPECT_EQ(std::ranges::count(some.err, '\n'), 1) << "a file that is no picture is not looked at: " << some.err;
  std::filesystem::remove(files.path("bad.png"));
  EXPECT_EQ(run(daemon, "example_classify_folder", "shapes " + files.path("")).exit_code, 0);
  std::filesystem::remove(files.path("star.PNG"));
  const Said none = run(daemon, "example_classify_folder", "shapes " + files.path(""));
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_TRUE(says(none.err, {files.path(""), "has no pictures"}));
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
  const auto [code, text, errors] = run(daemon, "example_detect", "ssd " + picture + " " + drawn);
  EXPECT_EQ(code, 0) << errors;
  EXPECT_TRUE(says(text, {"cat 0.88: (0, 0)", "dog 0.75: ("}));
  EXPECT_LT(text.find("cat"), text.find("dog"));
  EXPECT_GT(std::filesystem::file_size(drawn), 100u);
}

}  // namespace
}  // namespace shoal::test
