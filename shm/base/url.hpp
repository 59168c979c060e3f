// Where a model may lie: at a path, or at a URL from which it is fetched.
#pragma once

#include <string>
#include <string_view>

#include "shoal/result.hpp"

namespace shoal {

/// "https" of "https://host/dir/resnet". Empty for every text that does not begin with file://, http://, https://, s3:// or
/// hdfs://, which is a path.
std::string_view url_scheme(std::string_view path);

/// Whether the files must be fetched before they can be read: it is a URL, and not one of this machine's files.
bool must_be_fetched(std::string_view path);

/// URLs are shown and logged, so they must not hold secrets.
///   Errors  kInvalidArgument: a user before the host; a query or a fragment in an http:// or https:// URL. Names only the
///           host
Status check_url(std::string_view path);

/// The path of a file:// URL, in which "%20" is a space; other texts as they are.
///   Errors  kInvalidArgument: a host (file://host/path), "%" without two hexadecimal digits, a control character
Result<std::string> without_file_scheme(std::string_view path);

/// The bytes of a text in which "%20" is a space. Errors: kInvalidArgument: "%" without two hexadecimal digits
Result<std::string> percent_decoded(std::string_view text);

}  // namespace shoal
