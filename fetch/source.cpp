#include "fetch/source.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"

namespace shoal::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFirstWaitNs = 500'000'000, kLongestWaitS = 30;
constexpr std::size_t kShownBytes = 300;

class TextBody final : public Body {
 public:
  explicit TextBody(std::string& text) : text_(text) {}
  Status begin(const HttpReply&) override {
    text_.clear();
    return {};
  }
  Status take(std::span<const std::byte> bytes) override {
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text_.size() > kLongestText) return data_loss("the answer has more than {} bytes", kLongestText);
    return {};
  }

 private:
  std::string& text_;
};

/// Seconds that an overloaded server asks for; 0 if it says none.
std::uint64_t retry_after_s(const HttpReply& reply) {
  const std::string text = reply.header("retry-after");
  std::uint64_t seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::min(seconds, kLongestWaitS);
}

/// http:// and https://: no lists.
class WebSource final : public Source {
 public:
  explicit WebSource(Location location) : location_(std::move(location)) {}
  Result<std::optional<std::vector<RemoteFile>>> list(const std::string&, const std::string&) override {
    return std::optional<std::vector<RemoteFile>>();
  }
  HttpRequest request(const std::string& directory, const std::string& name, std::uint64_t from,
                      std::vector<std::string> headers) const override {
    return {.url = location_.url_of(directory, name), .headers = std::move(headers), .from = from, .allows_http = may_use_http()};
  }
  std::string remedy() const override { return "write user and password for this host into ~/.netrc if it wants them"; }

 private:
  const Location location_;
};

/// file://: this machine.
class FileSource final : public Source {
 public:
  Result<std::optional<std::vector<RemoteFile>>> list(const std::string& directory, const std::string& prefix) override {
    std::vector<RemoteFile> files;
    std::error_code error;
    const fs::path path = "/" + directory;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (!name.starts_with(prefix) || !is_file_name(name)) continue;
      auto found = find(directory, name);
      if (found.ok() && *found) files.push_back(**std::move(found));
    }
    if (error) return status_from_errno("list", path.string(), error.value());
    return std::optional(std::move(files));
  }
  Result<std::optional<RemoteFile>> find(const std::string& directory, const std::string& name) override {
    struct stat info {};
    const std::string path = "/" + directory + name;
    if (::stat(path.c_str(), &info) != 0) {
      if (errno == ENOENT) return std::optional<RemoteFile>();
      return status_from_errno("look at", path, errno);
    }
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))
      return invalid_argument("{}: this is neither a file nor a directory", path);
    return std::optional(
        RemoteFile{.name = name,
                   .is_directory = S_ISDIR(info.st_mode),
                   .size_bytes = static_cast<std::uint64_t>(info.st_size),
                   .version = format("{}:{}.{}:{}", info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_size)});
  }
  HttpRequest request(const std::string& directory, const std::string& name, std::uint64_t from,
                      std::vector<std::string>) const override {
    return {.url = "file:///" + percent_encoded(directory + name, true), .from = from};
  }
  std::string remedy() const override { return "change its rights"; }
};

}  // namespace

Result<std::optional<RemoteFile>> Source::find(const std::string&, const std::string& name) {
  return std::optional(RemoteFile{.name = name});
}

std::unique_ptr<Source> make_web_source(const Location& location) { return std::make_unique<WebSource>(location); }
std::unique_ptr<Source> make_file_source() { return std::make_unique<FileSource>(); }

Result<std::unique_ptr<Source>> make_source(const Location& location, HttpClient& client, const Course& course) {
  if (location.scheme == "s3") return make_s3_source(location, client, course);
  if (location.scheme == "hdfs") return make_webhdfs_source(location, client, course);
  if (location.scheme == "file") return make_file_source();
  return make_web_source(location);
}

Status error_of(const HttpReply& reply, const std::string& what, const Source& source) {
  const std::string said = source.explanation(reply);
  const std::string status = format("HTTP {}{}", reply.status, said.empty() ? "" : ": " + shortened(said, kShownBytes));
  if (reply.status == 404 || reply.status == 410) return not_found("{}: the server has no such file ({})", what, status);
  if (reply.status == 401 || reply.status == 403)
    return permission_denied("{}: the server refuses it ({}): {}", what, status, source.remedy());
  if (reply.status == 407)
    return permission_denied("{}: the proxy refuses it ({}): write its user and password into http_proxy", what, status);
  return unavailable("{}: the server answers {}", what, status);
}

HttpOutcome try_again(const Course& course, const std::function<HttpOutcome(bool& has_progressed)>& attempt) {
  std::uint64_t wait_ns = kFirstWaitNs;
  for (int failures = 1;; ++failures) {
    bool has_progressed = false;
    HttpOutcome outcome = attempt(has_progressed);
    if (!outcome.may_succeed_later) return outcome;
    if (has_progressed) {
      failures = 1;
      wait_ns = kFirstWaitNs;
    }
    if (failures == kMostFailures) return outcome;
    const Status waited = course.sleep(std::max(wait_ns, retry_after_s(outcome.reply) * 1'000'000'000));
    wait_ns *= 2;
    if (waited.ok()) continue;
    const std::string before =
        outcome.status.ok() ? format("the server answers HTTP {}", outcome.reply.status) : std::string(outcome.status.message());
    return {.status = waited.with_context(before)};
  }
}

Result<HttpReply> get_text(HttpClient& client, const Course& course, const std::string& what,
                           const std::function<HttpRequest()>& request, std::string& text) {
  TextBody body(text);
  HttpOutcome outcome = try_again(course, [&](bool&) { return client.get(request(), body); });
  if (!outcome.status.ok()) return outcome.status.with_context(what);
  return std::move(outcome.reply);
}

Status too_many_names(const std::string& what) {
  return invalid_argument("{}: the server lists more than {} names: give the model a directory of its own", what, kMostNames);
}

}  // namespace shoal::fetch
