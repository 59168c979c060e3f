#include "fetch/location.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "shm/base/errors.hpp"
#include "shm/base/url.hpp"

namespace shoal::fetch {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Status check_authority(std::string_view url, std::string_view scheme, std::string_view authority) {
  const auto is_fine = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("-._:[]").find(c) != std::string_view::npos;
  };
  if (authority.empty() || !std::ranges::all_of(authority, is_fine))
    return invalid_argument("'{}': write {}://{}/PATH", url, scheme, scheme == "s3" ? "BUCKET" : "HOST[:PORT]");
  if (scheme == "s3" && authority.find_first_of(":[]") != authority.npos)
    return invalid_argument("'{}': an s3:// URL begins with a bucket; the server is given by AWS_ENDPOINT_URL", url);
  if (scheme == "http" && !is_loopback(authority) && !may_use_http()) {
    return invalid_argument(
        "'{}': http:// is neither encrypted nor proves who answers: use https://, or set SHOAL_FETCH_HTTP=1 to fetch from hosts "
        "other than this one all the same",
        url);
  }
  return {};
}

}  // namespace

bool is_web(std::string_view scheme) { return scheme == "http" || scheme == "https"; }

bool may_use_http() {
  const char* const allowed = std::getenv("SHOAL_FETCH_HTTP");
  return allowed && std::string_view(allowed) == "1";
}

std::string_view without_epoch(std::string_view name) {
  const std::size_t at = name.rfind('@');
  if (at == name.npos || at + 1 == name.size() || !std::ranges::all_of(name.substr(at + 1), is_digit)) return name;
  return name.substr(0, at);
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && name.find('/') == name.npos &&
         std::ranges::none_of(name, is_control);
}

std::string shown_url(std::string_view url) {
  url = url.substr(0, url.find_first_of("?#"));
  const std::size_t separator = url.find("://");
  if (separator == url.npos) return std::string(url);
  const std::string_view rest = url.substr(separator + 3), authority = rest.substr(0, rest.find('/'));
  return format("{}://{}{}", url.substr(0, separator), authority.substr(authority.rfind('@') + 1), rest.substr(authority.size()));
}

std::string percent_encoded(std::string_view text, bool keep_slash) {
  constexpr std::string_view kDigits = "0123456789ABCDEF", kUnreserved = "-._~";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_alphanumeric = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || is_digit(c);
    if (is_alphanumeric || kUnreserved.find(c) != kUnreserved.npos || (keep_slash && c == '/')) {
      encoded += c;
    } else {
      encoded.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
    }
  }
  return encoded;
}

bool is_loopback(std::string_view authority) {
  const std::string_view host =
      authority.starts_with('[') ? authority.substr(0, authority.find(']') + 1) : authority.substr(0, authority.find(':'));
  const bool is_address = std::ranges::all_of(host, [](char c) { return is_digit(c) || c == '.'; });
  return host == "localhost" || host == "[::1]" || (is_address && host.starts_with("127."));
}

std::string Location::url_of(std::string_view directory, std::string_view file) const {
  const std::string path = std::string(directory).append(file);
  return format("{}://{}/{}", scheme, authority, is_web(scheme) ? percent_encoded(path, true) : path);
}

Result<Location> parse_location(std::string_view url) {
  if (std::ranges::any_of(url, is_control)) return invalid_argument("a URL must not contain control characters");
  Location location{.scheme = std::string(url_scheme(url))};
  if (location.scheme == "file") {
    SHOAL_ASSIGN_OR_RETURN(const std::string path, without_file_scheme(url));
    location.directory = path.substr(1, path.rfind('/'));
    location.name = path.substr(path.rfind('/') + 1);
    return location;
  }
  if (location.scheme.empty())
    return invalid_argument("'{}' is not a URL: it must begin with https://, s3://, hdfs:// or file://", url);
  SHOAL_RETURN_IF_ERROR(check_url(url));
  const std::string_view rest = url.substr(location.scheme.size() + 3);
  location.authority = rest.substr(0, rest.find('/'));
  SHOAL_RETURN_IF_ERROR(check_authority(url, location.scheme, location.authority));
  std::string path(rest.substr(std::min(location.authority.size() + 1, rest.size())));
  if (is_web(location.scheme)) {
    SHOAL_ASSIGN_OR_RETURN(path, percent_decoded(path));
  }
  const std::size_t slash = path.rfind('/');
  location.directory = slash == path.npos ? "" : path.substr(0, slash + 1);
  location.name = slash == path.npos ? path : path.substr(slash + 1);
  std::string_view left = location.directory;
  for (std::size_t end = 0; (end = left.find('/')) != left.npos; left.remove_prefix(end + 1)) {
    // A key in S3 may contain "//"; everything else stands for one directory each.
    if (const std::string_view part = left.substr(0, end); !is_file_name(part) && !(part.empty() && location.scheme == "s3"))
      return invalid_argument("'{}': '{}' is not the name of a directory", url, part);
  }
  if (!location.name.empty() && !is_file_name(location.name))
    return invalid_argument("'{}': '{}' is not the name of a file or directory", url, location.name);
  return location;
}

}  // namespace shoal::fetch
