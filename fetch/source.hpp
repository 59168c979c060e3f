// Source: what differs between servers. How files are asked for, listed, and told apart from their earlier content.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fetch/http.hpp"
#include "fetch/location.hpp"
#include "shoal/result.hpp"

namespace shoal::fetch {

struct RemoteFile {
  std::string name;
  bool is_directory = false;
  std::uint64_t size_bytes = 0;  ///< of find(), like the version
  std::string version;           ///< changes when the file is written again
};

///   Threads  thread-bound
class Source {
 public:
  virtual ~Source() = default;

  /// What lies in a directory under names that begin with `prefix`. Nothing if this kind of server lists no files. Names that
  /// cannot be those of files here are left out.
  ///   directory  as Location::directory
  ///   Errors     kNotFound: no such directory; those of error_of() and HttpClient::get(); kDataLoss: the list cannot be read
  virtual Result<std::optional<std::vector<RemoteFile>>> list(const std::string& directory, const std::string& prefix) = 0;

  /// The file as it is now; nothing if there is none. Without a version, and without asking, if the answer that brings the file
  /// tells it.
  virtual Result<std::optional<RemoteFile>> find(const std::string& directory, const std::string& name);

  /// How the file is asked for, signed now.
  ///   from     the first byte that is wanted
  ///   headers  further ones, which are sent, too
  virtual HttpRequest request(const std::string& directory, const std::string& name, std::uint64_t from,
                              std::vector<std::string> headers) const = 0;

  /// What the body of an error says, if it can be read; empty otherwise.
  virtual std::string explanation(const HttpReply&) const { return {}; }
  /// What to do about a refusal (401, 403).
  virtual std::string remedy() const = 0;
};

/// Errors: kInvalidArgument, kUnimplemented: settings in the environment. Reads them now, and no file of the user's later, except
/// ~/.netrc and certificates.
Result<std::unique_ptr<Source>> make_source(const Location& location, HttpClient& client, const Course& course);

/// An error for an answer that is none of success: names `what`, the status, what the server says, and what to do.
///   what  the URL for people
Status error_of(const HttpReply& reply, const std::string& what, const Source& source);

/// Makes a request until it succeeds or fails for good. Waits half a second after the first failure that may pass, and twice as
/// long after each further one; gives up after kMostFailures in a row without progress.
///   attempt  sets `has_progressed` if bytes came that are kept
HttpOutcome try_again(const Course& course, const std::function<HttpOutcome(bool& has_progressed)>& attempt);
inline constexpr int kMostFailures = 5;

/// The whole answer as text, with several tries.
///   what    the URL for people
///   Errors  those of HttpClient::get(), which name `what`, too; kDataLoss: longer than kLongestText. An answer like 404 is none
Result<HttpReply> get_text(HttpClient& client, const Course& course, const std::string& what,
                           const std::function<HttpRequest()>& request, std::string& text);
inline constexpr std::size_t kLongestText = 8 << 20;

/// A list of more names than kMostNames is refused: kInvalidArgument.
Status too_many_names(const std::string& what);
inline constexpr std::size_t kMostNames = 10'000;

// The kinds.
Result<std::unique_ptr<Source>> make_s3_source(const Location& location, HttpClient& client, const Course& course);
std::unique_ptr<Source> make_webhdfs_source(const Location& location, HttpClient& client, const Course& course);
std::unique_ptr<Source> make_web_source(const Location& location);
std::unique_ptr<Source> make_file_source();

}  // namespace shoal::fetch
