#include "fetch/sigv4.hpp"

#include <ctime>

#include "fetch/digest.hpp"
#include "fetch/location.hpp"
#include "shm/base/format.hpp"

namespace shoal::fetch {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

std::string_view date_of(std::string_view time) { return time.substr(0, 8); }

std::string scope(const AwsRequest& request, std::string_view time) {
  return format("{}/{}/{}/aws4_request", date_of(time), request.region, request.service);
}

std::map<std::string, std::string> signed_headers(const AwsRequest& request) {
  std::map<std::string, std::string> headers = request.headers;
  headers["host"] = request.host;
  return headers;
}

std::string names_of(const std::map<std::string, std::string>& headers) {
  std::string names;
  for (const auto& [name, value] : headers) names += (names.empty() ? "" : ";") + name;
  return names;
}

/// Without spaces around it; several spaces within are one.
std::string trimmed(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c != ' ' || (!text.empty() && text.back() != ' ')) text += c;
  }
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

}  // namespace

// The order is that of the encoded names.
std::string query_text(const std::map<std::string, std::string>& query) {
  std::map<std::string, std::string> encoded;
  for (const auto& [name, value] : query) encoded[percent_encoded(name)] = percent_encoded(value);
  std::string text;
  for (const auto& [name, value] : encoded) text += format("{}{}={}", text.empty() ? "" : "&", name, value);
  return text;
}

std::string canonical_request(const AwsRequest& request) {
  const auto headers = signed_headers(request);
  std::string text = format("{}\n{}\n{}\n", request.method, request.path, query_text(request.query));
  for (const auto& [name, value] : headers) text += format("{}:{}\n", name, trimmed(value));
  return text + format("\n{}\n{}", names_of(headers), request.payload_sha256);
}

std::string string_to_sign(const AwsRequest& request, std::string_view time) {
  return format("{}\n{}\n{}\n{}", kAlgorithm, time, scope(request, time), hex(sha256(canonical_request(request))));
}

std::string authorization(const AwsRequest& request, const AwsCredentials& credentials, std::string_view time) {
  std::string key = "AWS4" + credentials.secret_key;
  for (const std::string_view part :
       {date_of(time), std::string_view(request.region), std::string_view(request.service), std::string_view("aws4_request")})
    key = hmac_sha256(key, part);
  return format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm, credentials.access_key, scope(request, time),
                names_of(signed_headers(request)), hex(hmac_sha256(key, string_to_sign(request, time))));
}

std::vector<std::string> s3_headers(AwsRequest request, const AwsCredentials& credentials, std::int64_t unix_time_s) {
  const std::time_t seconds = unix_time_s;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char time[32] = {};
  std::strftime(time, sizeof time, "%Y%m%dT%H%M%SZ", &utc);
  request.headers["x-amz-date"] = time;
  request.headers["x-amz-content-sha256"] = request.payload_sha256;
  if (!credentials.session_token.empty()) request.headers["x-amz-security-token"] = credentials.session_token;
  std::vector<std::string> lines{"Authorization: " + authorization(request, credentials, time)};
  for (const auto& [name, value] : request.headers) lines.push_back(format("{}: {}", name, value));
  return lines;
}

}  // namespace shoal::fetch
