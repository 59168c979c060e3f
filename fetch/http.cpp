#include "fetch/http.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "fetch/location.hpp"
#include "shm/base/check.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"

namespace shoal::fetch {
namespace {

constexpr std::size_t kMostText = 4096, kMostHeaderBytes = 1 << 16, kMostErrorBytes = 1 << 20;
constexpr const char* kLocalFile = "file:";
#ifndef SHOAL_VERSION
#define SHOAL_VERSION "0"
#endif

/// "https://host:443", with the port also if it is the scheme's own. Empty if curl cannot read the URL.
std::string origin_of(const std::string& url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parts(::curl_url(), ::curl_url_cleanup);
  std::string origin;
  if (::curl_url_set(parts.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return origin;
  for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT}) {
    char* text = nullptr;
    if (::curl_url_get(parts.get(), part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return {};
    origin += lower(text) + ' ';
    ::curl_free(text);
  }
  return origin;
}

/// Host and port. What comes before '@' is a user, even if it looks like a host.
std::string_view authority_of(std::string_view url) {
  const std::size_t begin = url.find("://") + 3;
  const std::string_view authority = url.substr(begin, url.find_first_of("/?#", begin) - begin);
  return authority.substr(authority.rfind('@') + 1);
}

Status check_redirect(const HttpRequest& request, const std::string& from, const std::string& to) {
  if (to.starts_with("https://")) return {};
  const std::string what = format("{}: redirects to {}", shown_url(from), shown_url(to));
  if (!to.starts_with("http://")) return failed_precondition("{}, which is not fetched", what);
  if (from.starts_with("https://"))
    return failed_precondition("{}, where nothing is encrypted: use a URL that stays with https://", what);
  if (request.allows_http || is_loopback(authority_of(to))) return {};
  return failed_precondition("{}: set SHOAL_FETCH_HTTP=1 to fetch from other hosts by http://", what);
}

bool is_transient(CURLcode code) {
  constexpr CURLcode kTransient[] = {
      CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_HTTP2,      CURLE_PARTIAL_FILE,
      CURLE_OPERATION_TIMEDOUT,    CURLE_SSL_CONNECT_ERROR,    CURLE_GOT_NOTHING,     CURLE_SEND_ERROR, CURLE_RECV_ERROR,
      CURLE_HTTP2_STREAM};
  return std::ranges::count(kTransient, code) > 0;
}

bool is_transient(int status) {
  constexpr int kTransient[] = {408, 429, 500, 502, 503, 504};
  return std::ranges::count(kTransient, status) > 0;
}

Status proxy_refuses(const std::string& what, int status) {
  if (status == 407)
    return permission_denied("{}: the proxy refuses it (HTTP {}): write its user and password into https_proxy", what, status);
  if (status == 403)
    return permission_denied("{}: the proxy refuses it (HTTP {}): no_proxy names hosts without it", what, status);
  return unavailable("{}: the proxy answers HTTP {}", what, status);
}

std::string certificates() {
  for (const char* const name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    if (const char* const file = std::getenv(name); file != nullptr && *file != '\0') return file;
  }
  return {};
}

class HeaderList {
 public:
  ~HeaderList() { ::curl_slist_free_all(list_); }
  void add(const std::string& line) {
    curl_slist* const longer = ::curl_slist_append(list_, line.c_str());
    if (!longer) throw std::bad_alloc();
    list_ = longer;
  }
  curl_slist* get() { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

}  // namespace

std::string HttpReply::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

std::optional<std::uint64_t> HttpReply::length() const {
  const std::string text = header("content-length");
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(bytes) : std::nullopt;
}

std::string lower(std::string_view text) {
  std::string lowered(text);
  std::ranges::transform(lowered, lowered.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lowered;
}

std::optional<std::int64_t> http_date(const std::string& text) {
  const std::time_t time = ::curl_getdate(text.c_str(), nullptr);
  return time < 0 ? std::nullopt : std::optional<std::int64_t>(time);
}

/// What the callbacks of one transfer share.
struct HttpClient::Transfer {
  const Course& course;
  Body& body;
  CURL* curl;
  HttpReply reply = {};
  Status failure = {};  ///< that ended it from here
  bool has_begun = false;
  std::uint64_t error_bytes = 0, header_bytes = 0;
  std::uint64_t heard_ns = monotonic_now_ns();
  curl_off_t heard_bytes = 0;
  char message[CURL_ERROR_SIZE] = {};
  HeaderList headers = {};

  Status headers_end() {
    long status = 0;
    ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 ? begin() : Status();
  }

  /// At the end of the headers. Files have none: at their first byte, or at the end if they are empty.
  Status begin() {
    if (std::exchange(has_begun, true)) return {};
    long status = 0, version = 0;
    ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    ::curl_easy_getinfo(curl, CURLINFO_HTTP_VERSION, &version);
    const bool is_file = reply.url.starts_with(kLocalFile);
    reply.status = is_file ? 200 : static_cast<int>(status);
    reply.shows_its_end = is_file || reply.length() || version >= CURL_HTTP_VERSION_2_0 ||
                          lower(reply.header("transfer-encoding")).find("chunked") != std::string::npos;
    return reply.is_success() ? body.begin(reply) : Status();
  }

  Status take(std::string_view bytes) {
    SHOAL_RETURN_IF_ERROR(begin());
    if (reply.is_success()) return body.take(std::as_bytes(std::span(bytes)));
    reply.text.append(bytes.substr(0, kMostText - std::min(kMostText, reply.text.size())));
    error_bytes += bytes.size();
    if (error_bytes > kMostErrorBytes) return unavailable("the server's answer, HTTP {}, does not end", reply.status);
    return {};
  }

  Status look() {
    SHOAL_RETURN_IF_ERROR(course.check());
    const std::uint64_t stall_ns = course.limits().stall_ns;
    if (monotonic_now_ns() - heard_ns < stall_ns) return {};
    return unavailable("no byte came for {} s (SHOAL_FETCH_STALL_S)", stall_ns / 1'000'000'000);
  }

  // No exception may pass through curl.
  template <typename Function>
  bool guard(Function function) {
    if (!failure.ok()) return false;  // curl still tells of its end
    try {
      failure = function();
    } catch (const std::bad_alloc&) {
      failure = out_of_memory("fetching");
    } catch (const std::exception& error) {
      failure = internal_error("{}", error.what());
    }
    return failure.ok();
  }

  static std::size_t on_body(char* data, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    return transfer.guard([&] { return transfer.take({data, size}); }) ? size : CURL_WRITEFUNC_ERROR;
  }

  static std::size_t on_header(char* data, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const bool goes_on = transfer.guard([&]() -> Status {
      transfer.heard_ns = monotonic_now_ns();
      transfer.header_bytes += size;
      if (transfer.header_bytes > kMostHeaderBytes) return unavailable("the server sends more headers than any file needs");
      std::string_view line(data, size);
      while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
      if (line.starts_with("HTTP/")) transfer.reply.headers.clear();  // of an answer like 100, which comes before
      if (line.empty()) return transfer.headers_end();
      const std::size_t colon = line.find(':');
      if (colon == line.npos) return {};
      const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
      transfer.reply.headers[lower(line.substr(0, colon))] = begin == line.npos ? "" : line.substr(begin);
      return {};
    });
    return goes_on ? size : 0;
  }

  static int on_progress(void* self, curl_off_t, curl_off_t now, curl_off_t, curl_off_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (now != transfer.heard_bytes) transfer.heard_ns = monotonic_now_ns();
    transfer.heard_bytes = now;
    return transfer.guard([&] { return transfer.look(); }) ? 0 : 1;
  }
};

HttpClient::HttpClient(const Course& course) : course_(course) {
  static const CURLcode ready = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  curl_ = ready == CURLE_OK ? ::curl_easy_init() : nullptr;
  if (!curl_) throw std::bad_alloc();
}

HttpClient::~HttpClient() { ::curl_easy_cleanup(curl_); }

void HttpClient::set_up(const HttpRequest& request, const std::string& url, bool is_first_host, Transfer& transfer) {
  CURL* const curl = curl_;
  ::curl_easy_reset(curl);  // the connections stay
  const auto set = [curl](CURLoption option, auto value) {
    const CURLcode result = ::curl_easy_setopt(curl, option, value);
    if (result == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
    SHOAL_CHECK(result == CURLE_OK);
  };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, request.url.starts_with(kLocalFile) ? "file" : "http,https");
  set(CURLOPT_PATH_AS_IS, 1L);  // as it was signed
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_QUICK_EXIT, 1L);  // at the deadline nobody waits for a name service
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_USERAGENT, "shoal/" SHOAL_VERSION);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(course_.limits().stall_ns / 1'000'000));
  set(CURLOPT_NETRC, static_cast<long>(is_first_host ? CURL_NETRC_OPTIONAL : CURL_NETRC_IGNORED));
  const std::string bundle = request.ca_bundle.empty() ? certificates() : request.ca_bundle;
  if (!bundle.empty()) set(CURLOPT_CAINFO, bundle.c_str());
  if (request.from > 0 && !request.has_from_in_url) set(CURLOPT_RANGE, format("{}-", request.from).c_str());
  for (const std::string& line : request.headers) transfer.headers.add(line);
  for (const std::string& line : request.proofs) {
    if (is_first_host) transfer.headers.add(line);
  }
  set(CURLOPT_HTTPHEADER, transfer.headers.get());
  set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_ERRORBUFFER, transfer.message);
}

HttpOutcome HttpClient::hop(const HttpRequest& request, const std::string& url, bool is_first_host, Body& body) {
  Transfer transfer{.course = course_, .body = body, .curl = curl_, .reply = {.url = shown_url(url)}};
  set_up(request, url, is_first_host, transfer);
  const CURLcode code = ::curl_easy_perform(curl_);
  if (code == CURLE_OK) transfer.guard([&] { return transfer.begin(); });
  ::curl_easy_setopt(curl_, CURLOPT_ERRORBUFFER, nullptr);
  HttpOutcome outcome{.reply = std::move(transfer.reply)};
  if (!transfer.failure.ok()) {
    outcome.status = transfer.failure.with_context(outcome.reply.url);
    outcome.may_succeed_later = transfer.failure.code() == StatusCode::kUnavailable;
    return outcome;
  }
  if (code == CURLE_OK) {
    outcome.may_succeed_later = is_transient(outcome.reply.status);
    return outcome;
  }
  outcome.may_succeed_later = is_transient(code);
  const std::string why = transfer.message[0] != '\0' ? transfer.message : ::curl_easy_strerror(code);
  const std::string& shown = outcome.reply.url;
  long proxy_status = 0;
  ::curl_easy_getinfo(curl_, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
  if (proxy_status >= 400) {
    outcome.may_succeed_later = is_transient(static_cast<int>(proxy_status));
    outcome.status = proxy_refuses(shown, static_cast<int>(proxy_status));
  } else if (code == CURLE_FILE_COULDNT_READ_FILE) {
    outcome.status = not_found("{}: it cannot be read: {}", shown, why);
  } else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
    outcome.status = permission_denied(
        "{}: the server cannot be trusted: {}. If its certificate is your own, name the file of its authority in CURL_CA_BUNDLE",
        shown, why);
  } else {
    outcome.status = unavailable("{}: {}", shown, why);
  }
  return outcome;
}

HttpOutcome HttpClient::get(const HttpRequest& request, Body& body) {
  const std::string first = origin_of(request.url);
  std::string url = request.url;
  for (int redirects = 0;; ++redirects) {
    HttpOutcome outcome = hop(request, url, origin_of(url) == first, body);
    const int status = outcome.reply.status;
    const bool is_redirect = status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
    char* to = nullptr;
    if (outcome.status.ok() && is_redirect) ::curl_easy_getinfo(curl_, CURLINFO_REDIRECT_URL, &to);
    if (!to) return outcome;
    const std::string next = to;
    outcome.status = check_redirect(request, url, next);
    if (outcome.status.ok() && redirects == kMostRedirects) {
      outcome.status = failed_precondition("{}: more than {} redirects, the last one to {}: the server redirects in a circle",
                                           shown_url(request.url), kMostRedirects, shown_url(next));
    }
    if (!outcome.status.ok()) return outcome;
    url = next;
  }
}

}  // namespace shoal::fetch
