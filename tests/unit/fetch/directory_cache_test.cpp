#include "fetch/directory_cache.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "fetch/file_fetcher.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::fetch {
namespace {

namespace fs = std::filesystem;
using test::says;

std::string read(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class DirectoryCacheTest : public testing::Test {
 protected:
  DirectoryCache open() const { return DirectoryCache::open(scratch_.path("cache")).value(); }
  static void write_part(DirectoryCache& cache, const std::string& name, const FileRecord& record, const std::string& text) {
    const auto file = cache.begin_part(name, record);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_EQ(::write(file->get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  static FileRecord keep(DirectoryCache& cache, const std::string& name, const std::string& text, const std::string& etag) {
    write_part(cache, name, {.etag = etag, .size_bytes = text.size()}, text);
    return cache.keep(name, {.etag = etag, .size_bytes = text.size(), .sha256 = "of " + text}).value();
  }

  test::ScratchDirectory scratch_;
};

TEST_F(DirectoryCacheTest, APartIsFoundByTheNextProcess) {
  {
    DirectoryCache cache = open();
    write_part(cache, "a", {.etag = "\"1\"", .size_bytes = 10, .may_resume = true}, "12345");
  }
  DirectoryCache cache = open();
  const auto part = cache.part("a");
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->bytes, 5u);
  EXPECT_EQ(part->record.etag, "\"1\"");
  EXPECT_TRUE(part->record.may_resume);
  EXPECT_FALSE(cache.whole("a").has_value()) << "half a file is no file";
  cache.drop_part("a");
  EXPECT_FALSE(cache.part("a").has_value());
}

// Bytes may be lost when a machine stops. Nobody knows which.
TEST_F(DirectoryCacheTest, APartFromBeforeTheMachineStartedIsNotTrusted) {
  DirectoryCache cache = open();
  write_part(cache, "a", {.etag = "\"1\"", .may_resume = true}, "12345");
  const fs::path record = cache.part_path("a").string() + ".json";
  std::string text = read(record);
  const std::size_t boot = text.find("\"boot\":\"") + 8;
  text[boot] = text[boot] == '0' ? '1' : '0';
  std::ofstream(record) << text;
  EXPECT_FALSE(cache.part("a").has_value());
}

TEST_F(DirectoryCacheTest, WholeFilesAreKnownUntilTheyChange) {
  DirectoryCache cache = open();
  const FileRecord first = keep(cache, "a", "one", "\"1\"");
  EXPECT_EQ(read(cache.path_of(first)), "one");
  EXPECT_EQ(open().whole("a")->etag, "\"1\"");
  EXPECT_FALSE(cache.part("a").has_value());
  const FileRecord second = keep(cache, "a", "two!", "\"2\"");
  EXPECT_EQ(open().whole("a")->etag, "\"2\"");
  EXPECT_FALSE(fs::exists(cache.path_of(first))) << "nobody needs it any more";
  std::ofstream(cache.path_of(second), std::ios::app) << "longer";
  EXPECT_FALSE(cache.whole("a").has_value()) << "somebody has changed it";
}

TEST_F(DirectoryCacheTest, RecordsThatAreNoneAreForgotten) {
  DirectoryCache cache = open();
  const FileRecord record = keep(cache, "a", "one", "\"1\"");
  for (const auto& entry : fs::directory_iterator(scratch_.path("cache/files"))) {
    if (entry.path().extension() == ".json") std::ofstream(entry.path()) << R"({"stored": "../../x", "etag": 1})";
  }
  EXPECT_FALSE(cache.whole("a").has_value());
}

TEST_F(DirectoryCacheTest, ACopyHasExactlyItsFilesAndStays) {
  DirectoryCache cache = open();
  const FileRecord a = keep(cache, "a", "one", "\"1\""), b = keep(cache, "b", "two", "\"1\"");
  const fs::path copy = cache.assemble({{"a", a}, {"b", b}}, {}).value();
  EXPECT_EQ(read(copy / "a") + read(copy / "b"), "onetwo");
  EXPECT_EQ(cache.assemble({{"a", a}, {"b", b}}, {}).value(), copy);
  EXPECT_EQ(std::distance(fs::directory_iterator(copy), {}), 2);
  const FileRecord changed = keep(cache, "a", "uno", "\"2\"");
  const fs::path next = cache.assemble({{"a", changed}, {"b", b}}, {{"1", copy}}).value();
  EXPECT_NE(next, copy);
  EXPECT_EQ(read(copy / "a"), "one") << "somebody may still read it";
  EXPECT_EQ(read(next / "a") + read(next / "1" / "a"), "unoone");
  EXPECT_EQ(cache.linked_directories(), std::vector{copy});
}

TEST_F(DirectoryCacheTest, WhatAKilledProcessBeganIsMadeAnew) {
  DirectoryCache cache = open();
  const FileRecord a = keep(cache, "a", "one", "\"1\"");
  fs::create_directories(scratch_.path("cache/new/rest"));
  const fs::path copy = cache.assemble({{"a", a}}, {}).value();
  EXPECT_EQ(std::distance(fs::directory_iterator(copy), {}), 1);
  EXPECT_FALSE(fs::exists(scratch_.path("cache/new")));
}

TEST_F(DirectoryCacheTest, OldCopiesGoButForTheLatestTwo) {
  DirectoryCache cache = open();
  std::vector<fs::path> copies;
  for (int i = 0; i < 4; ++i) {
    copies.push_back(cache.assemble({{"a", keep(cache, "a", std::to_string(i), std::to_string(i))}}, {}).value());
    const auto age = std::chrono::seconds(DirectoryCache::kKeptS + 1000 - i);
    if (i < 3) fs::last_write_time(copies.back(), fs::file_time_type::clock::now() - age);
  }
  EXPECT_FALSE(fs::exists(copies[0]));
  EXPECT_FALSE(fs::exists(copies[1]));
  EXPECT_TRUE(fs::exists(copies[2]));
  EXPECT_TRUE(fs::exists(copies[3]));
}

TEST_F(DirectoryCacheTest, OneProcessHasTheLock) {
  const fs::path directory = scratch_.path("locked");
  int waits = 0;
  auto first = lock_directory(directory, [] { return Status(); });
  ASSERT_TRUE(first.ok());
  const auto second =
      lock_directory(directory, [&] { return ++waits == 3 ? Status(StatusCode::kDeadlineExceeded, "late") : Status(); });
  EXPECT_EQ(second.status().message(), "late");
  first->reset();
  EXPECT_TRUE(lock_directory(directory, [] { return Status(StatusCode::kInternal, "locked"); }).ok());
}

TEST(Checksums, LinesOfSha256sum) {
  const std::string one(64, 'a'), two(64, 'B');
  const auto sums = parse_checksums(
      one + "  m-symbol.json\n" + two + " *m.params\r\n" + one + "  ./x\n" + one + "  ../y\n" + one + "  1/z\n# comment\n",
      "https://host/SHA256SUMS");
  ASSERT_TRUE(sums.ok()) << sums.status().to_string();
  EXPECT_TRUE(check_names(*sums, {"y", "x"}, "SHA256SUMS").ok());
  const Status others = check_names(*sums, {"y", "z"}, "https://host/SHA256SUMS");
  EXPECT_EQ(others.code(), StatusCode::kDataLoss) << "names in other directories do not count";
  EXPECT_TRUE(says(others.message(), {"https://host/SHA256SUMS", "'y'", "'../y'", "and 4 more", "sha256sum *"}));
  EXPECT_EQ(parse_checksums(one + "  a/x\n" + two + "  a/x\n", "SHA256SUMS").status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(check_names({}, {"y"}, "SHA256SUMS").ok());
  EXPECT_EQ(sums->at("m-symbol.json"), one);
  EXPECT_EQ(sums->at("m.params"), std::string(64, 'b'));
  EXPECT_TRUE(sums->contains("x"));
  const Status twofold = parse_checksums(one + "  x\n" + one + "  x\n" + two + "  ./x\n", "https://host/SHA256SUMS").status();
  EXPECT_EQ(twofold.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(says(twofold.message(), {"https://host/SHA256SUMS", "'x'"}));
  EXPECT_TRUE(says(parse_checksums("<html>not found</html>", "https://host/SHA256SUMS").status().message(),
                   {"https://host/SHA256SUMS", "sha256sum"}));
}

}  // namespace
}  // namespace shoal::fetch
