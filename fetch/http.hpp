// GET requests, by libcurl. This is the only file that knows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fetch/limits.hpp"
#include "shoal/result.hpp"

namespace shoal::fetch {

struct HttpRequest {
  std::string url;                   ///< https, http, or file
  std::vector<std::string> headers;  ///< "If-None-Match: ...": sent to whoever answers in the end
  std::vector<std::string> proofs;   ///< "Authorization: ...": sent to the host of `url` only, not where it redirects to
  std::uint64_t from = 0;            ///< the first byte that is wanted
  bool has_from_in_url = false;      ///< so no Range header is sent
  bool allows_http = false;          ///< redirects may lead to http:// on other machines, if `url` itself is http://
  std::string ca_bundle;             ///< a file of certificates; empty: CURL_CA_BUNDLE, SSL_CERT_FILE, or the machine's
};

struct HttpReply {
  int status = 0;                                           ///< 200 also for file://
  std::map<std::string, std::string, std::less<>> headers;  ///< names in lower case
  std::string url;                                          ///< that answered, for people: as shown_url() has it
  std::string text;                                         ///< the beginning of an answer other than 2xx
  bool shows_its_end = false;                               ///< a body that is cut off is noticed

  std::string header(std::string_view name) const;  ///< empty if it is not there
  std::optional<std::uint64_t> length() const;      ///< of the body
  bool is_success() const { return status >= 200 && status < 300; }
};

/// ASCII letters in lower case.
std::string lower(std::string_view text);

/// Seconds since 1970 of "Sun, 06 Nov 1994 08:49:37 GMT"; nothing for other texts.
std::optional<std::int64_t> http_date(const std::string& text);

/// Takes the body of a 2xx answer. A Status that is not OK ends the request; kUnavailable says that another try may succeed.
class Body {
 public:
  virtual ~Body() = default;
  /// Before the first byte, also if there is none.
  virtual Status begin(const HttpReply& reply) = 0;
  virtual Status take(std::span<const std::byte> bytes) = 0;
};

struct HttpOutcome {
  Status status;                   ///< OK: there is an answer, also one like 404
  bool may_succeed_later = false;  ///< the connection failed or broke, or the server is overloaded
  HttpReply reply;
};

///   Threads  thread-bound
class HttpClient {
 public:
  explicit HttpClient(const Course& course);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Follows at most kMostRedirects redirects, never from https:// to http://. Proxies are those of the environment
  /// (https_proxy, no_proxy, ...). User and password for the first host may be in ~/.netrc.
  ///   Errors  kUnavailable: connecting, TLS, a broken connection, a stall; kPermissionDenied: a certificate, the proxy refuses;
  ///           kFailedPrecondition: redirects in a circle or to http://; those of `body` and Course::check(). All name the URL
  HttpOutcome get(const HttpRequest& request, Body& body);

  static constexpr int kMostRedirects = 10;

 private:
  struct Transfer;
  HttpOutcome hop(const HttpRequest& request, const std::string& url, bool is_first_host, Body& body);
  void set_up(const HttpRequest& request, const std::string& url, bool is_first_host, Transfer& transfer);

  const Course& course_;
  void* curl_;
};

}  // namespace shoal::fetch
