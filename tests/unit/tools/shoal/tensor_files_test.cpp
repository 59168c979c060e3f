#include "tools/shoal/tensor_files.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "shm/tensor/npy.hpp"

namespace shoal::tool {
namespace {

TEST(InputArguments, AreNameAndFile) {
  const std::vector<std::string> arguments{"data=x.npy", "mask=a=b.npy"};
  const auto inputs = parse_inputs(arguments).value();
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].name, "data");
  EXPECT_EQ(inputs[1].file, "a=b.npy");
}

TEST(InputArguments, ThatAreHalfAreRefusedWithTheArgument) {
  for (const std::string argument : {"x.npy", "=x.npy", "data=", ""}) {
    const auto inputs = parse_inputs(std::span(&argument, 1));
    EXPECT_EQ(inputs.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(inputs.status().message().find("--input " + argument + ": write INPUT=FILE.npy"), std::string::npos);
  }
}

TEST(FileNames, KeepPlainCharactersAndNumberCollisions) {
  std::set<std::string> taken;
  EXPECT_EQ(file_name_of("prob_output", taken), "prob_output");
  EXPECT_EQ(file_name_of("a/b", taken), "a_b");
  EXPECT_EQ(file_name_of("a:b", taken), "a_b-2");
  EXPECT_EQ(file_name_of("a_b-2", taken), "a_b-2-2");
  EXPECT_EQ(file_name_of("a b", taken), "a_b-3");
  EXPECT_EQ(file_name_of("../../etc/x", taken), ".._.._etc_x");
  EXPECT_EQ(file_name_of("", taken), "_");
}

TEST(Outputs, AreWrittenToADirectoryThatIsMade) {
  const auto directory = std::filesystem::temp_directory_path() / ("shoal-outputs-" + std::to_string(::getpid())) / "deep";
  Tensors outputs;
  outputs.push_back({"x:0", Tensor::create(DType::kInt32, {2, 3}).value()});
  const auto written = write_outputs(outputs, directory.string()).value();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].file, (directory / "x_0.npy").string());
  EXPECT_EQ(read_npy(written[0].file).value().shape(), (Shape{2, 3}));
  std::filesystem::remove_all(directory.parent_path());
  EXPECT_FALSE(write_outputs(outputs, "/proc/nowhere").ok());
}

}  // namespace
}  // namespace shoal::tool
