#include "shm/base/url.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "shm/base/errors.hpp"

namespace shoal {
namespace {

constexpr std::string_view kSchemes[] = {"file", "http", "https", "s3", "hdfs"};
constexpr std::string_view kSeparator = "://", kFile = "file", kS3 = "s3", kHdfs = "hdfs";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// What a URL begins with, known or not (RFC 3986, 3.1); empty for a path, also for one like "models/ftp://x".
std::string_view any_scheme(std::string_view path) {
  const std::size_t end = path.find(kSeparator);
  if (end == path.npos || end == 0 || !is_letter(path.front())) return {};
  const auto may_follow = [](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'; };
  const std::string_view scheme = path.substr(0, end);
  return std::ranges::all_of(scheme, may_follow) ? scheme : std::string_view();
}

}  // namespace

std::string_view url_scheme(std::string_view path) {
  const std::string_view scheme = any_scheme(path);
  const auto known =
      std::ranges::find_if(kSchemes, [&](std::string_view each) { return std::ranges::equal(each, scheme, {}, {}, lower); });
  return known == std::end(kSchemes) ? std::string_view() : *known;
}

Status check_url(std::string_view path) {
  const std::string_view scheme = url_scheme(path);
  if (const std::string_view other = any_scheme(path); scheme.empty() && !other.empty()) {
    return invalid_argument(
        "a URL with {}:// is none of those that models are fetched from: https://, http://, s3://, hdfs:// and file://. (A path "
        "that begins with it is written ./{}:...)",
        other, other);
  }
  if (scheme.empty() || scheme == kFile) return {};
  const std::string_view rest = path.substr(scheme.size() + kSeparator.size());
  const std::string_view authority = rest.substr(0, rest.find('/'));
  const std::string_view behind_user = authority.substr(authority.rfind('@') + 1);
  const std::string_view host = behind_user.substr(0, behind_user.find_first_of("?#"));
  const bool is_web = scheme != kS3 && scheme != kHdfs;
  if (behind_user.size() < authority.size()) {
    return invalid_argument("the URL for host '{}' contains a user: URLs are shown and logged, so {}", host,
                            is_web            ? "write user and password into ~/.netrc"
                            : scheme == kHdfs ? "set HADOOP_USER_NAME"
                                              : "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials");
  }
  if (!is_web || rest.find_first_of("?#") == rest.npos) return {};
  return invalid_argument(
      "the URL for host '{}' contains '?' or '#': names of files are added to the URL, and it is shown and logged, "
      "so it must not contain a query or a fragment",
      host);
}

Result<std::string> percent_decoded(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      bytes += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    unsigned char byte = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2)
      return invalid_argument("'{}': '%' must be followed by two hexadecimal digits; write '%' itself as %25", text);
    bytes += static_cast<char>(byte);
    i += 2;
  }
  return bytes;
}

Result<std::string> without_file_scheme(std::string_view path) {
  if (url_scheme(path) != kFile) return std::string(path);
  const std::string_view rest = path.substr(kFile.size() + kSeparator.size());
  if (!rest.starts_with('/'))
    return invalid_argument("'{}': write file:// and an absolute path, as in file:///models/resnet-50", path);
  SHOAL_ASSIGN_OR_RETURN(std::string decoded, percent_decoded(rest));
  if (std::ranges::any_of(decoded, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return invalid_argument("'{}': a path with control characters", path);
  return decoded;
}

}  // namespace shoal
