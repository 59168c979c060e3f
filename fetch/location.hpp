// Where a model lies on a server, from the URL that a user gave.
#pragma once

#include <string>
#include <string_view>

#include "shoal/result.hpp"

namespace shoal::fetch {

/// "s3://bucket/models/resnet-50@7": a directory on a server, and the beginning of names in it.
struct Location {
  std::string scheme;     ///< "s3"
  std::string authority;  ///< "bucket"; else host and port
  /// "models/", decoded; empty, or with '/' at its end
  std::string directory;
  /// "resnet-50@7": the prefix of a model, or a directory. Empty: the URL ends with '/', and is a directory.
  std::string name;

  /// The URL of a file, or of a directory if `file` is empty, for people: "s3://bucket/models/resnet-50-symbol.json".
  std::string url_of(std::string_view directory, std::string_view file) const;
};

/// In http:// and https:// URLs "%20" is a space; s3:// and hdfs:// URLs say names as they are.
///   Errors  kInvalidArgument: no host; a user, a query or a fragment; a name that is no name of a file; http:// to another
///           machine, unless SHOAL_FETCH_HTTP=1
Result<Location> parse_location(std::string_view url);

/// "http" and "https".
bool is_web(std::string_view scheme);

/// SHOAL_FETCH_HTTP=1: http:// to other machines, too.
bool may_use_http();

/// Any URL for errors and logs: without user and query, where redirects carry signatures and tokens.
std::string shown_url(std::string_view url);

/// "resnet-50" of "resnet-50@7", else `name`.
std::string_view without_epoch(std::string_view name);

/// Whether a name that comes from elsewhere may become a file's name here: 1 to 255 bytes, neither "." nor "..", without '/' and
/// without control characters.
bool is_file_name(std::string_view name);

/// `text` with each byte but A-Z, a-z, 0-9, '-', '.', '_', '~' as "%XX"; '/' stays if `keep_slash`. So RFC 3986 has it, and S3
/// signs it.
std::string percent_encoded(std::string_view text, bool keep_slash = false);

/// "localhost", 127.0.0.0/8 and [::1], with or without a port.
bool is_loopback(std::string_view authority);

}  // namespace shoal::fetch
