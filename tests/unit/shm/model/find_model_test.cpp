#include "shm/model/model_config.hpp"

#include <gtest/gtest.h>

#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

using test::says;
using test::ScratchDirectory;

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
  EXPECT_EQ(model->symbol_file, files.path("resnet-50-symbol.json"));
  EXPECT_EQ(model->params_file, files.path("resnet-50-0000.params"));
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
  EXPECT_EQ(model->params_file, files.path("net-12345.params"));
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
  EXPECT_EQ(model->params_file, files.path("resnet-0000.params"));
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

}  // namespace
}  // namespace shoal
