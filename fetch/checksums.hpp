// SHA256SUMS: which bytes the files beside it have.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fetch/limits.hpp"
#include "shoal/result.hpp"

namespace shoal::fetch {

inline constexpr const char* kChecksums = "SHA256SUMS";

/// Name -> hexadecimal SHA-256. A name with a directory, such as "a/x" or "/a/x", is that of no file beside SHA256SUMS. Only
/// labels and golden files at a file:// URL may have one.
using Checksums = std::map<std::string, std::string>;

/// Reads the output of sha256sum.
///   Errors  kDataLoss: no line is such a line, or a name has two sums; names `what`
Result<Checksums> parse_checksums(std::string_view text, const std::string& what);

/// Whoever puts SHA256SUMS beside a model wants it verified, so sums of other files only are a mistake.
///   files   of the model, as SHA256SUMS may name them
///   Errors  kDataLoss: there are sums, and none is for one of `files`; names `what`, one of these, a name that is there, and
///           what to do
Status check_names(const Checksums& checksums, const std::vector<std::string>& files, const std::string& what);

/// Errors: kDataLoss: `name` is there, with another sum than `found`; names `what` and both sums
Status check_sum(const Checksums& checksums, const std::string& name, const std::string& found, const std::string& what);

/// The SHA-256 of a file. Tells the listener of its progress.
///   name    what the listener is told
///   Errors  those of sha256_of_file() and Course::check()
Result<std::string> sum_of(const Course& course, const std::filesystem::path& file, const std::string& name);

}  // namespace shoal::fetch
