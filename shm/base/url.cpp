#include "shm/base/url.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "shm/base/errors.hpp"

namespace shoal {
namespace {

constexpr std::string_view kSchemes[] = {"file", "http", "https", "s3", "hdfs"};
constexpr std::string_view kSeparator = "://", kFile = "file", kS3 = "s3", kHdfs = "hdfs";

}  // namespace

std::string_view url_scheme(std::string_view path) {
  const std::string_view scheme = path.substr(0, std::min(path.find(kSeparator), path.size()));
  const bool is_known = scheme.size() < path.size() && std::ranges::count(kSchemes, scheme) > 0;
  return is_known ? scheme : std::string_view();
}

bool must_be_fetched(std::string_view path) {
  const std::string_view scheme = url_scheme(path);
  return !scheme.empty() && scheme != kFile;
}

Status check_url(std::string_view path) {
  const std::string_view scheme = url_scheme(path);
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
      "the URL for host '{}' contains '?' or '#': names of files are added to the URL, and it is shown and logged, so it must "
      "not "
      "contain a query or a fragment",
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
