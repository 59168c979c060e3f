// Signature Version 4 of AWS: how a request proves who asks. curl's own --aws-sigv4 signs some characters wrongly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::fetch {

struct AwsCredentials {
  std::string access_key, secret_key, session_token;  ///< the token may be empty
  bool empty() const { return access_key.empty(); }
};

/// What is signed.
struct AwsRequest {
  std::string method = "GET";
  std::string host;                            ///< as the Host header has it: with the port unless it is the scheme's own
  std::string path;                            ///< as it is sent: encoded, and beginning with '/'
  std::map<std::string, std::string> query;    ///< not encoded
  std::map<std::string, std::string> headers;  ///< further headers to sign; names in lower case
  std::string payload_sha256;                  ///< hexadecimal
  std::string region, service;
};

/// The hexadecimal SHA-256 of nothing: GET requests have no body.
inline constexpr std::string_view kEmptySha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// "list-type=2&prefix=a%2Fb": names and values encoded, sorted. So it is signed, and must be sent.
std::string query_text(const std::map<std::string, std::string>& query);

/// The steps of signing, for tests.
///   time  "20150830T123600Z"
std::string canonical_request(const AwsRequest& request);
std::string string_to_sign(const AwsRequest& request, std::string_view time);
std::string authorization(const AwsRequest& request, const AwsCredentials& credentials, std::string_view time);

/// The headers that sign a request to S3: "Authorization: ...", x-amz-date, x-amz-content-sha256, and x-amz-security-token if the
/// credentials have one.
///   unix_time_s  seconds since 1970; S3 refuses a time that is wrong by 15 minutes
std::vector<std::string> s3_headers(AwsRequest request, const AwsCredentials& credentials, std::int64_t unix_time_s);

}  // namespace shoal::fetch
