// The expected values are AWS's: its test suite of Signature Version 4 and the examples of S3's documentation. The one with odd
// characters is what botocore 1.44.8 computes.
#include "fetch/sigv4.hpp"

#include <gtest/gtest.h>

#include "fetch/location.hpp"

namespace shoal::fetch {
namespace {

const AwsCredentials kSuiteKeys{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
const AwsCredentials kS3Keys{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
constexpr const char *kSuiteTime = "20150830T123600Z", *kS3Time = "20130524T000000Z";

AwsRequest suite_request(std::string path, std::map<std::string, std::string> query = {},
                         std::map<std::string, std::string> headers = {}) {
  headers["x-amz-date"] = kSuiteTime;
  return {.host = "example.amazonaws.com",
          .path = std::move(path),
          .query = std::move(query),
          .headers = std::move(headers),
          .payload_sha256 = std::string(kEmptySha256),
          .region = "us-east-1",
          .service = "service"};
}

AwsRequest s3_request(std::string path, std::map<std::string, std::string> headers,
                      std::map<std::string, std::string> query = {}) {
  headers["x-amz-date"] = kS3Time;
  headers["x-amz-content-sha256"] = kEmptySha256;
  return {.host = "examplebucket.s3.amazonaws.com",
          .path = std::move(path),
          .query = std::move(query),
          .headers = std::move(headers),
          .payload_sha256 = std::string(kEmptySha256),
          .region = "us-east-1",
          .service = "s3"};
}

std::string signature(const AwsRequest& request, const AwsCredentials& keys, const char* time) {
  const std::string text = authorization(request, keys, time);
  return text.substr(text.rfind('=') + 1);
}

TEST(SigV4, GetVanilla) {
  const AwsRequest request = suite_request("/");
  EXPECT_EQ(canonical_request(request),
            "GET\n/\n\nhost:example.amazonaws.com\nx-amz-date:20150830T123600Z\n\nhost;x-amz-date\n"
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(string_to_sign(request, kSuiteTime),
            "AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/service/aws4_request\n"
            "bb579772317eb040ac9ed261061d46c1f17a8133879d6129b6e1c25292927e63");
  EXPECT_EQ(authorization(request, kSuiteKeys, kSuiteTime),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, "
            "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
}

TEST(SigV4, GetVanillaQueryOrderKeyCase) {
  EXPECT_EQ(signature(suite_request("/", {{"Param2", "value2"}, {"Param1", "value1"}}), kSuiteKeys, kSuiteTime),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
}

TEST(SigV4, GetUnreserved) {
  const std::string path = "/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  EXPECT_EQ(percent_encoded(path, true), path);
  EXPECT_EQ(signature(suite_request(path), kSuiteKeys, kSuiteTime),
            "98964e1079ce472101899439653197a4f6e602f30cd6aaf6c76d81b4fd9866fe");
}

TEST(SigV4, GetHeaderValueTrim) {
  const AwsRequest request = suite_request("/", {}, {{"my-header1", " value1"}, {"my-header2", " \"a   b   c\" "}});
  EXPECT_EQ(signature(request, kSuiteKeys, kSuiteTime), "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
}

TEST(SigV4, S3GetObject) {
  EXPECT_EQ(signature(s3_request("/test.txt", {{"range", "bytes=0-9"}}), kS3Keys, kS3Time),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigV4, S3ListObjects) {
  EXPECT_EQ(signature(s3_request("/", {}, {{"max-keys", "2"}, {"prefix", "J"}}), kS3Keys, kS3Time),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

// curl signs some of these characters wrongly (curl#13754).
TEST(SigV4, S3KeyWithOddCharactersAndAToken) {
  AwsRequest request = s3_request("/bucket/" + percent_encoded("a b+c=d~e*f'(g)&h/\u00fc@7:,;!$.params", true),
                                  {{"x-amz-security-token", "tok/en+=="}});
  request.host = "127.0.0.1:9000";
  request.region = "eu-west-1";
  EXPECT_EQ(request.path, "/bucket/a%20b%2Bc%3Dd~e%2Af%27%28g%29%26h/%C3%BC%407%3A%2C%3B%21%24.params");
  EXPECT_EQ(signature(request, kS3Keys, kS3Time), "4353c8ed635ca850f07ac62d34e894fc26512a3cb54ef79f77d8a7f343ed432c");
}

TEST(SigV4, HeadersOfARequestToS3) {
  AwsRequest request = s3_request("/test.txt", {});
  request.headers.clear();
  const auto lines = s3_headers(request, {"KEY", "SECRET", "TOKEN"}, 1'369'353'600);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(
      lines[0].starts_with("Authorization: AWS4-HMAC-SHA256 Credential=KEY/20130524/us-east-1/s3/aws4_request, "
                           "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, Signature="))
      << lines[0];
  EXPECT_EQ(lines[1], "x-amz-content-sha256: " + std::string(kEmptySha256));
  EXPECT_EQ(lines[2], "x-amz-date: 20130524T000000Z");
  EXPECT_EQ(lines[3], "x-amz-security-token: TOKEN");
}

TEST(SigV4, TheQueryIsSortedByItsEncodedNames) {
  EXPECT_EQ(query_text({{"prefix", "a/b c"}, {"list-type", "2"}, {"continuation-token", "1+/="}}),
            "continuation-token=1%2B%2F%3D&list-type=2&prefix=a%2Fb%20c");
}

}  // namespace
}  // namespace shoal::fetch
