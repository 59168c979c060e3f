// Where a model may lie: at a path, or at a URL from which it is fetched.
#pragma once

#include <string>
#include <string_view>

#include "shoal/result.hpp"

namespace shoal {

/// "https" of "https://host/dir/resnet" and of "HTTPS://host/dir/resnet". Empty for every text that does not begin with file://,
/// http://, https://, s3:// or hdfs://.
std::string_view url_scheme(std::string_view path);

/// Whether a process must fetch the files, or verify them where they are (file://), before they are read: it is a URL.
inline bool must_be_fetched(std::string_view path) { return !url_scheme(path).empty(); }

/// URLs are shown and logged, so they must not hold secrets. A path is fine.
///   Errors  kInvalidArgument: a user before the host; a query or a fragment in an http:// or https:// URL. Names only the
///           host. Another scheme (ftp://): names it and those that are known, and not the rest, which may be secret
Status check_url(std::string_view path);

/// The path of a file:// URL, in which "%20" is a space; other texts as they are.
///   Errors  kInvalidArgument: a host (file://host/path), "%" without two hexadecimal digits, a control character
Result<std::string> without_file_scheme(std::string_view path);

/// The bytes of a text in which "%20" is a space. Errors: kInvalidArgument: "%" without two hexadecimal digits
Result<std::string> percent_decoded(std::string_view text);

}  // namespace shoal
