#include "fetch/file_fetcher.hpp"

#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "shm/base/errors.hpp"
#include "shm/base/regular_file.hpp"
#include "shm/base/shortened.hpp"

namespace shoal::fetch {
namespace {

constexpr std::string_view kFileScheme = "file:";
constexpr std::int64_t kSafeAgeS = 60;  // of a last modification: RFC 9110, 8.8.2.2
constexpr int kOk = 200, kPartial = 206, kNotModified = 304, kForbidden = 403, kNotFound = 404, kGone = 410, kNotInRange = 416;

bool is_strong(std::string_view etag) { return etag.starts_with('"'); }

bool is_range_from(std::string_view range, std::uint64_t from) { return range.starts_with(format("bytes {}-", from)); }

/// "bytes 5-7/10": 10; a server may send less than was asked for. Nothing for "bytes 5-7/*".
std::optional<std::uint64_t> size_in_range(std::string_view range) {
  const std::string_view digits = range.substr(range.rfind('/') + 1);
  std::uint64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(size) : std::nullopt;
}

/// What the answer says of the file's version.
FileRecord record_of(const HttpReply& reply, std::string version) {
  FileRecord record{.etag = reply.header("etag"), .last_modified = reply.header("last-modified"), .version = std::move(version)};
  const auto modified = http_date(record.last_modified), now = http_date(reply.header("date"));
  record.may_resume = is_strong(record.etag) || (record.etag.empty() && modified && now && *now - *modified >= kSafeAgeS);
  return record;
}

}  // namespace

/// Writes what comes behind what is there.
class FileFetcher::PartBody final : public Body {
 public:
  PartBody(FileFetcher& fetcher, const Wish& wish, const RemoteFile& now, std::uint64_t from, bool has_range_in_url)
      : fetcher_(fetcher), wish_(wish), name_(wish.name), now_(now), from_(from), has_range_in_url_(has_range_in_url) {}

  Status begin(const HttpReply& reply) override {
    const Status wrong = check(reply);
    if (!wrong.ok()) return wrong;
    const bool goes_on = from_ > 0 && (reply.status == kPartial || has_range_in_url_);
    if (from_ > 0 && !goes_on) from_ = 0;  // the file has changed, or the server knows no ranges
    FileRecord record = record_of(reply, now_.version);
    const auto length = reply.length();
    if (reply.status == kPartial && !has_range_in_url_) record.size_bytes = size_in_range(reply.header("content-range"));
    if (!record.size_bytes && length && !reply.url.starts_with(kFileScheme))
      record.size_bytes = from_ + *length;  // of a file:// URL, curl says that of the whole file
    if (!now_.version.empty()) {
      if (record.size_bytes && *record.size_bytes != now_.size_bytes)
        return unavailable("{} bytes are announced, where the file has {}: it is just being changed", *record.size_bytes,
                           now_.size_bytes);
      record.size_bytes = now_.size_bytes;
    }
    if (!record.size_bytes && !reply.shows_its_end)
      return data_loss(
          "the server says neither how long the file is nor where it ends, so nobody would notice that it is cut off");
    size_bytes_ = record.size_bytes;
    SHOAL_RETURN_IF_ERROR(check_size(size_bytes_.value_or(0)));
    SHOAL_ASSIGN_OR_RETURN(file_, goes_on ? fetcher_.cache_.continue_part(name_) : fetcher_.cache_.begin_part(name_, record));
    if (goes_on && ::ftruncate(file_.get(), static_cast<off_t>(from_)) != 0)
      return status_from_errno("write", fetcher_.cache_.part_path(name_).string(), errno);
    done_ = from_;
    return {};
  }

  Status take(std::span<const std::byte> bytes) override {
    SHOAL_RETURN_IF_ERROR(write_fully(file_.get(), bytes, fetcher_.cache_.part_path(name_).string()));
    done_ += bytes.size();
    SHOAL_RETURN_IF_ERROR(check_size(done_));
    fetcher_.tools_.course.tell({.file = name_, .done_bytes = done_, .total_bytes = size_bytes_.value_or(0)});
    return {};
  }

  std::uint64_t done_bytes() const { return done_; }
  bool has_resumed() const { return from_ > 0; }
  bool is_short() const { return size_bytes_ && done_ != *size_bytes_; }
  Status cut_off() const { return unavailable("the file broke off after {} of {} bytes", done_, size_bytes_.value_or(0)); }

 private:
  Status check(const HttpReply& reply) const {
    if (const std::string coding = reply.header("content-encoding"); !coding.empty() && coding != "identity")
      return data_loss("the server sends it encoded as '{}', which nobody asked for", shortened(coding, 40));
    if (reply.status == kOk || has_range_in_url_) return {};
    if (reply.status != kPartial) return data_loss("HTTP {} is no answer with a file", reply.status);
    const std::string range = reply.header("content-range");
    if (from_ > 0 && is_range_from(range, from_)) return {};
    fetcher_.cache_.drop_part(name_);
    return unavailable("the server sends another range ('{}') than the one from byte {}", shortened(range, 60), from_);
  }

  Status check_size(std::uint64_t bytes) const {
    if (bytes > wish_.largest_bytes)
      return failed_precondition("{} bytes are too many: of {}, at most {} MiB are read", bytes, name_,
                                 wish_.largest_bytes >> 20);
    const Course& course = fetcher_.tools_.course;
    return bytes > course.bytes_left() ? course.too_large(bytes) : Status();
  }

  FileFetcher& fetcher_;
  const Wish& wish_;
  const std::string& name_;
  const RemoteFile& now_;
  std::uint64_t from_;
  const bool has_range_in_url_;
  std::uint64_t done_ = 0;
  std::optional<std::uint64_t> size_bytes_;
  UniqueFd file_;
};

HttpOutcome FileFetcher::attempt(const Wish& wish, const RemoteFile& now, const std::optional<FileRecord>& known,
                                 std::uint64_t& furthest_bytes, bool& has_progressed, bool& has_resumed) {
  const Source& source = tools_.source;
  const std::string& name = wish.name;
  const auto part = cache_.part(name);
  const bool is_same = part && (now.version.empty() ? part->record.may_resume : part->record.version == now.version);
  std::vector<std::string> headers;
  std::uint64_t from = 0;
  if (is_same) {
    // The last byte comes again if there is no other: a range behind the end is an error.
    from = part->bytes - (part->bytes > 0 && part->record.size_bytes == part->bytes ? 1 : 0);
    const std::string& mark = is_strong(part->record.etag) ? part->record.etag : part->record.last_modified;
    if (from > 0) headers.push_back("If-Range: " + mark);
  }
  // Some servers look at a date although the ETag says that the file is another one. A date alone tells nothing of changes
  // within its second.
  if (from == 0 && known && !known->etag.empty()) {
    headers.push_back("If-None-Match: " + known->etag);
  } else if (from == 0 && known && known->may_resume) {
    headers.push_back("If-Modified-Since: " + known->last_modified);
  }
  const HttpRequest request = source.request(directory_, name, from, std::move(headers));
  PartBody body(*this, wish, now, from, request.has_from_in_url || request.url.starts_with(kFileScheme));
  HttpOutcome outcome = tools_.client.get(request, body);
  if (body.done_bytes() > furthest_bytes) {
    furthest_bytes = body.done_bytes();
    has_progressed = true;
  }
  has_resumed = body.has_resumed();
  if (outcome.status.ok() && outcome.reply.is_success() && body.is_short()) {
    outcome.status = body.cut_off().with_context(outcome.reply.url);
    outcome.may_succeed_later = true;
  }
  if (outcome.reply.status == kNotInRange) {
    cache_.drop_part(name);
    outcome.may_succeed_later = true;
  }
  return outcome;
}

Result<std::optional<FileRecord>> FileFetcher::absent(const std::string& name, Need need, const HttpReply& reply) const {
  const Status why = error_of(reply, url_of(name), tools_.source);
  const bool is_absent = reply.status == kNotFound || reply.status == kGone || reply.status == kForbidden;
  if (need == Need::kRequired || !is_absent) return why;
  if (reply.status == kForbidden) tools_.warnings.push_back(format("{}; it is taken for missing", why.message()));
  return std::optional<FileRecord>();
}

Result<FileRecord> FileFetcher::finish(const std::string& name, bool& is_wrong) {
  const auto part = cache_.part(name);
  const std::string what = url_of(name);
  if (!part) return internal_error("{}: its part {} has vanished", what, cache_.part_path(name).string());
  FileRecord record = part->record;
  record.size_bytes = part->bytes;
  auto sum = sum_of(tools_.course, cache_.part_path(name), name);
  if (!sum.ok()) return sum.status().with_context(what);
  record.sha256 = *std::move(sum);
  if (Status wrong = check_sum(checksums_, name, record.sha256, what); !wrong.ok()) {
    is_wrong = true;
    cache_.drop_part(name);
    return wrong;
  }
  return cache_.keep(name, std::move(record));
}

Result<std::optional<FileRecord>> FileFetcher::fetch(const Wish& wish) {
  const std::string& name = wish.name;
  const std::string what = url_of(name);
  auto known = cache_.whole(name);
  if (const auto expected = checksums_.find(name); known && expected != checksums_.end() && expected->second != known->sha256)
    known.reset();
  const auto unchanged = [&]() -> Result<std::optional<FileRecord>> {
    SHOAL_RETURN_IF_ERROR(tools_.course.take_bytes(known->size_bytes.value_or(0)).with_context(what));
    return known;
  };
  for (bool is_last = false;; is_last = true) {
    SHOAL_ASSIGN_OR_RETURN(const auto now, tools_.source.find(directory_, name));
    if (!now || now->is_directory) return absent(name, wish.need, {.status = kNotFound});
    if (known && !now->version.empty() && known->version == now->version) return unchanged();
    std::uint64_t furthest_bytes = 0;
    bool has_resumed = false, is_wrong = false;
    const HttpOutcome outcome = try_again(tools_.course, [&](bool& has_progressed) {
      return attempt(wish, *now, known, furthest_bytes, has_progressed, has_resumed);
    });
    if (!outcome.status.ok()) {
      const bool names_it = outcome.status.message().find(what) != std::string::npos;
      return names_it ? outcome.status : outcome.status.with_context(what);
    }
    if (outcome.reply.status == kNotModified && known) return unchanged();
    if (!outcome.reply.is_success()) return absent(name, wish.need, outcome.reply);
    SHOAL_ASSIGN_OR_RETURN(const auto after, tools_.source.find(directory_, name));
    if (!after || after->version != now->version) {
      cache_.drop_part(name);
      if (is_last) return unavailable("{}: it changes while it is fetched: try again when it is complete", what);
      continue;
    }
    auto kept = finish(name, is_wrong);
    if (is_wrong && has_resumed && !is_last) continue;  // its beginning may be of another version
    if (!kept.ok()) return kept.status();
    SHOAL_RETURN_IF_ERROR(tools_.course.take_bytes(kept->size_bytes.value_or(0)).with_context(what));
    return std::optional(*std::move(kept));
  }
}

}  // namespace shoal::fetch
