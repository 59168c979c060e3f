#include "fetch/location.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/says.hpp"

namespace shoal::fetch {
namespace {

using test::says;

Location location(const char* url) {
  const auto parsed = parse_location(url);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? *parsed : Location();
}

std::string refusal(const std::string& url) {
  const auto parsed = parse_location(url);
  EXPECT_FALSE(parsed.ok()) << url;
  return parsed.status().message();
}

TEST(Location, ADirectoryAndTheBeginningOfNames) {
  const Location web = location("https://host:8443/models/r%20n/resnet-50@7");
  EXPECT_EQ(web.authority, "host:8443");
  EXPECT_EQ(web.directory, "models/r n/");
  EXPECT_EQ(web.name, "resnet-50@7");
  EXPECT_EQ(web.url_of(web.directory, "resnet-50-symbol.json"), "https://host:8443/models/r%20n/resnet-50-symbol.json");
  const Location bucket = location("s3://bucket/a%20b/");
  EXPECT_EQ(bucket.directory, "a%20b/") << "keys are written as they are";
  EXPECT_EQ(bucket.name, "");
  EXPECT_EQ(location("s3://bucket").directory, "");
  EXPECT_EQ(location("s3://bucket/resnet").name, "resnet");
  EXPECT_EQ(location("file:///models/a%20b/m").directory, "models/a b/");
}

TEST(Location, RefusesWhatIsNoModelsUrl) {
  EXPECT_TRUE(says(refusal("https://host/m?token=1"), {"'?'"}));
  EXPECT_TRUE(says(refusal("https:///m"), {"https://HOST[:PORT]/PATH"}));
  EXPECT_TRUE(says(refusal("s3://bucket:9000/m"), {"AWS_ENDPOINT_URL"}));
  EXPECT_TRUE(says(refusal("https://host/a/../m"), {"'..'", "directory"}));
  EXPECT_TRUE(says(refusal("hdfs://host/a/.."), {"'..'"}));
  EXPECT_TRUE(says(refusal("https://host/a%2/m"), {"hexadecimal"}));
  EXPECT_TRUE(says(refusal("https://host/a%0a/m"), {"directory"}));
  EXPECT_TRUE(says(refusal("https://host/m\n"), {"control characters"}));
  EXPECT_TRUE(says(refusal("models/m"), {"not a URL"}));
}

TEST(Location, AnErrorShowsNoPassword) {
  const std::string why = refusal("https://me:secret@host/m");
  EXPECT_TRUE(says(why, {"'host'", ".netrc"}));
  EXPECT_EQ(why.find("secret"), std::string::npos) << why;
}

TEST(Location, AUrlIsShownWithoutUserAndQuery) {
  EXPECT_EQ(shown_url("https://host:1/a%20b/c?X-Amz-Signature=secret#part"), "https://host:1/a%20b/c");
  EXPECT_EQ(shown_url("https://me:secret@host/a@b"), "https://host/a@b");
  EXPECT_EQ(shown_url("https://me@host"), "https://host");
  EXPECT_EQ(shown_url("file:///a"), "file:///a");
  EXPECT_EQ(shown_url("?secret"), "");
}

TEST(Location, PlainHttpStaysOnThisMachine) {
  for (const char* url : {"http://127.0.0.1:80/m", "http://localhost/m", "http://[::1]:8080/m"})
    EXPECT_EQ(location(url).name, "m");
  EXPECT_TRUE(says(refusal("http://models.example.com/m"), {"https://", "SHOAL_FETCH_HTTP=1"}));
  EXPECT_TRUE(says(refusal("http://127.0.0.1.example.com/m"), {"https://"}));
  ::setenv("SHOAL_FETCH_HTTP", "1", 1);
  EXPECT_EQ(location("http://models.example.com/m").name, "m");
  ::unsetenv("SHOAL_FETCH_HTTP");
}

TEST(Location, NamesFromServers) {
  for (const char* name : {"a", "resnet-50-symbol.json", "a b", "\u00fc", "..."}) EXPECT_TRUE(is_file_name(name)) << name;
  for (const char* name : {"", ".", "..", "a/b", "/etc/passwd", "a\nb", "a\x7f"}) EXPECT_FALSE(is_file_name(name)) << name;
  EXPECT_FALSE(is_file_name(std::string(256, 'a')));
}

TEST(Location, WithoutTheEpoch) {
  EXPECT_EQ(without_epoch("resnet@7"), "resnet");
  EXPECT_EQ(without_epoch("resnet@"), "resnet@");
  EXPECT_EQ(without_epoch("me@host"), "me@host");
  EXPECT_EQ(without_epoch("a@1@2"), "a@1");
}

}  // namespace
}  // namespace shoal::fetch
