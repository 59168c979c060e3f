#include "fetch/aws_settings.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::fetch {
namespace {

using test::says;

/// No settings of the machine: HOME is an empty directory.
class AwsSettingsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE",
          "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_CA_BUNDLE"})
      ::unsetenv(name);
    ::setenv("HOME", home_.path("").c_str(), 1);
    std::filesystem::create_directory(home_.path(".aws"));
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(home_.path(".aws/" + name)) << text; }

  test::ScratchDirectory home_;
};

TEST_F(AwsSettingsTest, NothingIsAPublicBucketInVirginia) {
  const auto settings = read_aws_settings();
  ASSERT_TRUE(settings.ok()) << settings.status().to_string();
  EXPECT_TRUE(settings->credentials.empty());
  EXPECT_EQ(settings->region, "us-east-1");
  EXPECT_EQ(settings->endpoint, "");
}

TEST_F(AwsSettingsTest, TheEnvironmentComesBeforeFiles) {
  write("credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = S\n");
  write("config", "[default]\nregion = eu-west-1\nendpoint_url = https://files.example\n");
  auto settings = read_aws_settings().value();
  EXPECT_EQ(settings.credentials.access_key, "FILE");
  EXPECT_EQ(settings.region, "eu-west-1");
  EXPECT_EQ(settings.endpoint, "https://files.example");
  ::setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "T", 1);
  ::setenv("AWS_DEFAULT_REGION", "eu-north-1", 1);
  ::setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/", 1);
  settings = read_aws_settings().value();
  EXPECT_EQ(settings.credentials.access_key, "ENV");
  EXPECT_EQ(settings.credentials.session_token, "");
  EXPECT_EQ(settings.region, "eu-north-1");
  EXPECT_EQ(settings.endpoint, "http://127.0.0.1:9000");
  ::setenv("AWS_REGION", "eu-south-1", 1);
  EXPECT_EQ(read_aws_settings().value().region, "eu-south-1");
}

TEST_F(AwsSettingsTest, ProfilesOfBothFiles) {
  write("credentials",
        "# comment\n[default]\naws_access_key_id=D\naws_secret_access_key=S\n\n[team]\n aws_access_key_id = nested, not a key\n"
        "aws_access_key_id = T\r\naws_secret_access_key = a=b/c+\r\naws_session_token = tok\n");
  write("config", "[profile team]\nregion=ap-east-1\ns3 =\n  addressing_style = path\n");
  ::setenv("AWS_PROFILE", "team", 1);
  const auto settings = read_aws_settings().value();
  EXPECT_EQ(settings.credentials.access_key, "T");
  EXPECT_EQ(settings.credentials.secret_key, "a=b/c+");
  EXPECT_EQ(settings.credentials.session_token, "tok");
  EXPECT_EQ(settings.region, "ap-east-1");
  ::setenv("AWS_PROFILE", "nobody", 1);
  EXPECT_TRUE(says(read_aws_settings().status().message(), {"AWS_PROFILE", "'nobody'"}));
}

TEST_F(AwsSettingsTest, SaysWhatItCannotDo) {
  ::setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
  EXPECT_TRUE(says(read_aws_settings().status().message(), {"AWS_SECRET_ACCESS_KEY", "both"}));
  ::unsetenv("AWS_ACCESS_KEY_ID");
  write("config", "[default]\nrole_arn = arn:aws:iam::1:role/r\n");
  EXPECT_EQ(read_aws_settings().status().code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(says(read_aws_settings().status().message(), {"role_arn", "export-credentials"}));
  write("config", "");
  ::setenv("AWS_ENDPOINT_URL", "127.0.0.1:9000", 1);
  EXPECT_TRUE(says(read_aws_settings().status().message(), {"AWS_ENDPOINT_URL", "http://"}));
  for (const char* const url : {"user:secret@host:9000", "http://user:secret@host:9000", "https://host/?token=secret"}) {
    ::setenv("AWS_ENDPOINT_URL", url, 1);
    const auto settings = read_aws_settings();
    EXPECT_EQ(settings.status().code(), StatusCode::kInvalidArgument) << url;
    EXPECT_EQ(settings.status().message().find("secret"), std::string_view::npos) << settings.status().to_string();
  }
}

}  // namespace
}  // namespace shoal::fetch
