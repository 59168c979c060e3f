#include "shm/base/url.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "shm/base/fetch_timeout.hpp"
#include "tests/support/says.hpp"

namespace shoal {
namespace {

using test::says;

TEST(Url, IsOneOfFiveKinds) {
  EXPECT_EQ(url_scheme("https://host/m"), "https");
  EXPECT_EQ(url_scheme("s3://bucket"), "s3");
  EXPECT_EQ(url_scheme("HTTPS://host/m"), "https") << "RFC 3986, 3.1";
  EXPECT_EQ(url_scheme("S3://bucket"), "s3");
  for (const char* path : {"", "/models/m", "models/m", "ftp://host/m", "https", "https:/host", "builtin:identity", "://",
                           "x/https://host", "httpsx://host", "http+s3://host"})
    EXPECT_EQ(url_scheme(path), "") << path;
  EXPECT_TRUE(must_be_fetched("hdfs://host/m"));
  EXPECT_TRUE(must_be_fetched("File:///m")) << "its files are verified";
  EXPECT_FALSE(must_be_fetched("/m"));
}

TEST(Url, OfAnotherSchemeIsNoPath) {
  for (const char* url : {"ftp://me:secret@host/m", "gs://secret", "svn+ssh://secret/m", "HTTPSX://secret"}) {
    const Status status = check_url(url);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << url;
    const std::string scheme(url, std::string_view(url).find("://") + 3);
    EXPECT_TRUE(says(status.message(), {scheme.c_str(), "https://", "http://", "s3://", "hdfs://", "file://"})) << url;
    EXPECT_EQ(status.message().find("secret"), std::string_view::npos) << status.message();
  }
  for (const char* path : {"models/ftp://m", "/ftp://m", "./ftp://m", "://m", "1x://m", "a b://m"})
    EXPECT_TRUE(check_url(path).ok()) << path;
}

TEST(Url, OfAFileIsItsPath) {
  EXPECT_EQ(without_file_scheme("file:///models/a%20b%25").value(), "/models/a b%");
  EXPECT_EQ(without_file_scheme("FILE:///models/m").value(), "/models/m");
  EXPECT_EQ(without_file_scheme("/models/a%20b").value(), "/models/a%20b") << "a path is a path";
  EXPECT_TRUE(says(without_file_scheme("file://host/m").status().message(), {"file://host/m", "file:///"}));
  EXPECT_TRUE(says(without_file_scheme("file:///a%2").status().message(), {"hexadecimal"}));
  EXPECT_TRUE(says(without_file_scheme("file:///a%00").status().message(), {"control characters"}));
}

TEST(Url, HoldsNoSecrets) {
  for (const char* url :
       {"https://host/m", "https://host/m@7", "s3://bucket/a?b#c@d", "hdfs://host:9870/a?b", "file:///a@b?c", "a@b?c"})
    EXPECT_TRUE(check_url(url).ok()) << url;
  for (const char* url :
       {"https://me:secret@host/m", "https://secret@host", "http://host/m?secret", "https://host?token=secret",
        "https://host/m#secret", "https://me:secret@host?secret", "s3://key:secret@host/m", "hdfs://secret@host/m"}) {
    const Status status = check_url(url);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << url;
    EXPECT_TRUE(says(status.message(), {"'host'"})) << url;
    EXPECT_EQ(status.message().find("secret"), std::string_view::npos) << status.message();
  }
}

TEST(NumberVariable, IsAWholeNumberInItsRange) {
  ::unsetenv("SHOAL_FETCH_TIMEOUT_S");
  EXPECT_EQ(fetch_timeout_s().value(), 3600);
  ::setenv("SHOAL_FETCH_TIMEOUT_S", "7", 1);
  EXPECT_EQ(fetch_timeout_s().value(), 7);
  for (const char* text : {"0", "-1", "7s", "1e3", "99999999999"}) {
    ::setenv("SHOAL_FETCH_TIMEOUT_S", text, 1);
    EXPECT_TRUE(says(fetch_timeout_s().status().message(), {"SHOAL_FETCH_TIMEOUT_S", text, "604800"}));
  }
  ::unsetenv("SHOAL_FETCH_TIMEOUT_S");
}

}  // namespace
}  // namespace shoal
