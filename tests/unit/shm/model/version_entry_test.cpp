#include "shm/model/version_entry.hpp"

#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

using test::says;
using test::ScratchDirectory;

ModelRequest request_of(const std::string& path, const std::string& keys = "") {
  return parse_model_argument("net=" + path + keys).value();
}

TEST(VersionEntry, SaysInAnyCaseWhichVersionItIs) {
  const ScratchDirectory files;
  files.write("3/net-symbol.json");
  files.write("3/net-0000.params", "1234567");
  files.write("4/readme");
  const auto entries = find_entries(request_of(files.path(), ",versions=all"));
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_TRUE(entries[0].failure.ok());
  EXPECT_EQ(entries[0].model.files.version, 3u);
  EXPECT_EQ(entries[0].parameter_bytes, 7u);
  EXPECT_FALSE(entries[1].failure.ok());
  EXPECT_EQ(entries[1].model.files.version, 4u);
  EXPECT_EQ(entries[1].model.name, "net");
  const auto none = find_entries(request_of(files.path(), ",versions=9"));
  ASSERT_EQ(none.size(), 1u) << "one that says why there is none";
  EXPECT_TRUE(says(none[0].failure.message(), {"'net'", "version 9", "3, 4"}));
}

TEST(VersionEntry, CountsAGraphThatHoldsParameters) {
  const ScratchDirectory files;
  files.write("d/net.one", "12345");
  EXPECT_EQ(find_entries(request_of(files.path("d")))[0].parameter_bytes, 5u);
  files.write("d/net.one.data", "1234567");
  EXPECT_EQ(find_entries(request_of(files.path("d")))[0].parameter_bytes, 12u);
}

TEST(VersionEntry, KnowsTheBuiltInModels) {
  EXPECT_TRUE(find_entries(request_of("builtin:identity"))[0].failure.ok());
  EXPECT_EQ(find_entries(request_of("builtin:identity", ",workers=3"))[0].model.config.workers, 3);
  EXPECT_TRUE(
      says(find_entries(request_of("builtin:other"))[0].failure.message(), {"'net'", "builtin:other", "builtin:identity"}));
  EXPECT_TRUE(same_version(find_entries(request_of("builtin:identity"))[0], find_entries(request_of("builtin:identity"))[0]));
}

TEST(VersionEntry, IsTheSameUntilAFileOrAKeyChanges) {
  const ScratchDirectory files;
  const auto find = [&](const std::string& keys = "") { return find_entries(request_of(files.path(), keys))[0]; };
  files.write("net-symbol.json", "{}");
  files.write("net-0000.params", "1234567");
  const VersionEntry first = find();
  EXPECT_TRUE(same_version(first, find()));
  EXPECT_TRUE(same_version(first, find(",workers=7"))) << "more workers are no other version";
  EXPECT_FALSE(same_version(first, find(",threads=2")));
  files.write("new.params", "1234567");
  std::filesystem::rename(files.path("new.params"), files.path("net-0000.params"));
  EXPECT_FALSE(same_version(first, find())) << "another file of the same size";
  const VersionEntry second = find();
  files.write("synset.txt", "cat\n");
  EXPECT_FALSE(same_version(second, find())) << "other labels";
  files.write("model.toml", "golden = \"in.npz\"");
  const VersionEntry third = find();
  files.write("in.npz", "x");
  EXPECT_FALSE(same_version(third, find())) << "another golden input";
}

}  // namespace
}  // namespace shoal
