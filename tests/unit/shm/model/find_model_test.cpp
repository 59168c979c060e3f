#include "shm/model/model_config.hpp"

#include <gtest/gtest.h>

#include "shm/model/model_kind.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

using test::says;
using test::ScratchDirectory;

// The formats register theirs (worker/import); this folder knows none.
const ModelKind kTwoFiles{.name = "two", .title = "Two", .graph_suffix = "-symbol.json", .weights_suffix = ".params"};
const ModelKind kOneFile{.name = "one", .title = "One", .graph_suffix = ".one", .data_suffixes = {".one.data", ".one.more"}};
// Its name comes after that of kOneFile, whose suffix its own ends with.
const ModelKind kLonger{.name = "onel", .title = "Long", .graph_suffix = ".long.one", .weights_suffix = ".params"};
const bool kRegistered = (register_model_kind(kTwoFiles), register_model_kind(kOneFile), register_model_kind(kLonger), true);

TEST(FindModel, TakesAKindWithoutParametersOfItsOwn) {
  const ScratchDirectory files;
  files.write("d/net.one");
  files.write("d/net.one.more");
  for (const std::string& path : {files.path("d"), files.path("d/net"), files.path("d/net.one")}) {
    const auto model = find_model(path);
    ASSERT_TRUE(model.ok()) << path << ": " << model.status().to_string();
    EXPECT_EQ(model->prefix, "net");
    EXPECT_EQ(model->files, (std::vector<std::filesystem::path>{files.path("d/net.one"), files.path("d/net.one.more")}));
  }
  EXPECT_TRUE(says(find_model(files.path("d/net@3")).status().message(), {"d/net.one", "epoch 3", "One"}));
  EXPECT_TRUE(is_model_prefix(files.path("d/net")));
  EXPECT_FALSE(is_model_prefix(files.path("d/nat")));
}

TEST(FindModel, TakesTheKindWithTheLongestSuffix) {
  const ScratchDirectory files;
  files.write("net.long.one");
  files.write("net-0000.params");
  const auto model = find_model(files.path());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(model->prefix, "net");
  EXPECT_EQ(model->files, (std::vector<std::filesystem::path>{files.path("net.long.one"), files.path("net-0000.params")}));
  EXPECT_EQ(kind_of("net.one"), &kOneFile);
  EXPECT_EQ(kind_of(".one"), nullptr) << "no prefix";
}

TEST(FindModel, TellsKindsOfOnePrefixApart) {
  const ScratchDirectory files;
  for (const char* name : {"net-symbol.json", "net-0000.params", "net.one"}) files.write(name);
  for (const std::string& path : {files.path(), files.path("net")}) {
    EXPECT_TRUE(says(find_model(path).status().message(), {"net-symbol.json, net.one"}));
  }
  EXPECT_EQ(find_model(files.path("net.one")).value().files.size(), 1u);
  EXPECT_EQ(find_model(files.path("net-symbol.json")).value().files.size(), 2u);
}

TEST(FindModel, TakesAPrefixWithEpochZero) {
  const ScratchDirectory files;
  files.write("resnet-50-symbol.json");
  files.write("resnet-50-0000.params");
  files.write("resnet-50-0016.params");
  const auto model = find_model(files.path("resnet-50"));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(model->prefix, "resnet-50");
  EXPECT_EQ(model->epoch, 0);
  EXPECT_EQ(model->version, 1u);
  EXPECT_EQ(model->files.at(0), files.path("resnet-50-symbol.json"));
  EXPECT_EQ(model->files.at(1), files.path("resnet-50-0000.params"));
  EXPECT_TRUE(model->config_file.empty());
}

TEST(FindModel, TakesAPrefixInTheWorkingDirectory) {
  const ScratchDirectory directory;
  directory.write("net-symbol.json");
  directory.write("net-0000.params");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  const auto files = find_model("net");
  std::filesystem::current_path(before);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_EQ(files->prefix, "net");
}

TEST(FindModel, TakesTheEpochAfterTheAtSign) {
  const ScratchDirectory files;
  files.write("net-symbol.json");
  files.write("net-0000.params");
  files.write("net-12345.params");
  const auto model = find_model(files.path("net@12345"));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(model->files.at(1), files.path("net-12345.params"));
}

TEST(FindModel, ListsTheEpochsWhenTheWantedOneIsMissing) {
  const ScratchDirectory files;
  files.write("net-symbol.json");
  files.write("net-0003.params");
  files.write("net-0007.params");
  const auto model = find_model(files.path("net@5"));
  EXPECT_EQ(model.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(says(model.status().message(), {"net", "5", "3, 7"}));
}

TEST(FindModel, TakesTheOnlyEpochThereIs) {
  const ScratchDirectory files;
  files.write("net-symbol.json");
  files.write("net-0007.params");
  const auto model = find_model(files.path("net"));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(model->epoch, 7);
}

TEST(FindModel, RefusesToChooseBetweenEpochs) {
  const ScratchDirectory files;
  files.write("net-symbol.json");
  files.write("net-0003.params");
  files.write("net-0007.params");
  const auto model = find_model(files.path("net"));
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(model.status().message(), {"3, 7", "@N"}));
}

TEST(FindModel, DoesNotTakeALongerPrefixForAnEpoch) {
  const ScratchDirectory files;
  files.write("resnet-symbol.json");
  files.write("resnet-0000.params");
  files.write("resnet-50-0004.params");
  files.write("resnet-012.params");  // three digits: nobody writes an epoch so
  const auto model = find_model(files.path("resnet"));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(model->files.at(1), files.path("resnet-0000.params"));
  EXPECT_FALSE(find_model(files.path("resnet@4")).ok());
}

TEST(FindModel, TakesTheOnlyPrefixOfADirectoryWithOrWithoutASlash) {
  const ScratchDirectory files;
  files.write("d/net-symbol.json");
  files.write("d/net-0000.params");
  files.write("d/model.toml");
  for (const std::string& path : {files.path("d"), files.path("d") + "/", files.path("d") + "@0"}) {
    const auto model = find_model(path);
    ASSERT_TRUE(model.ok()) << path << ": " << model.status().to_string();
    EXPECT_EQ(model->prefix, "net");
    EXPECT_EQ(model->config_file, files.path("d/model.toml"));
  }
}

TEST(FindModel, ListsThePrefixesOfADirectoryWithSeveral) {
  const ScratchDirectory files;
  for (const char* name : {"a-symbol.json", "b-symbol.json", "a-0000.params", "b-0000.params"}) files.write(name);
  const auto model = find_model(files.path());
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(model.status().message(), {"a, b"}));
}

TEST(FindModel, TakesTheHighestVersionByNumberNotByName) {
  const ScratchDirectory files;
  for (const char* version : {"9", "10", "old"}) {
    files.write(std::string(version) + "/net-symbol.json");
    files.write(std::string(version) + "/net-0000.params");
  }
  files.write("model.toml");  // one for all versions
  const auto model = find_model(files.path());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(model->version, 10u);
  EXPECT_EQ(model->directory, files.path("10"));
  EXPECT_EQ(model->config_file, files.path("model.toml"));
}

TEST(FindModel, NamesWhatIsMissing) {
  const ScratchDirectory files;
  files.write("net-symbol.json");
  const auto no_params = find_model(files.path("net"));
  EXPECT_EQ(no_params.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(says(no_params.status().message(), {"net-0000.params"}));
  const auto misspelt = find_model(files.path("nat"));
  EXPECT_EQ(misspelt.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(says(misspelt.status().message(), {"nat-symbol.json", "beside it: net"}));
  files.write("empty/readme");
  EXPECT_EQ(find_model(files.path("empty")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(find_model("").status().code(), StatusCode::kInvalidArgument);
}

TEST(FindModel, RefusesUrlsWhoseFilesNobodyHasVerified) {
  const ScratchDirectory files;
  files.write("a b/net-symbol.json");
  files.write("a b/net-0000.params");
  const auto here = find_model("FILE://" + files.path("a%20b/net"));
  EXPECT_EQ(here.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(here.status().message(), {files.path("a b/net"), "SHA256SUMS", "shoal fetch"}));
  EXPECT_FALSE(find_versions("file://" + files.path("a%20b"), {}).ok());
  const auto other = find_model("ftp://host/net");
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(other.status().message(), {"ftp://", "https://", "s3://", "hdfs://", "file://"}));
  files.write("ftp:/net-symbol.json");
  files.write("ftp:/net-0000.params");
  EXPECT_TRUE(find_model(files.path("ftp://net")).ok()) << "a path is a path";
  const auto web = find_model("https://host/net");
  EXPECT_EQ(web.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(web.status().message(), {"'https://host/net'", "shoal fetch"}));
}

}  // namespace
}  // namespace shoal
