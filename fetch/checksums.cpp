#include "fetch/checksums.hpp"

#include <algorithm>
#include <cctype>

#include "fetch/digest.hpp"
#include "fetch/http.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/shortened.hpp"

namespace shoal::fetch {
namespace {

constexpr std::size_t kSha256Digits = 64, kLongestShown = 255;

bool is_sha256(std::string_view text) {
  return text.size() == kSha256Digits && std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

}  // namespace

Result<Checksums> parse_checksums(std::string_view text, const std::string& what) {
  Checksums checksums;
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  const bool is_page = begin != text.npos && text[begin] == '<';
  bool has_line = false;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string_view digits = line.substr(0, std::min(kSha256Digits, line.size()));
    const std::string_view rest = line.substr(digits.size());
    if (!is_sha256(digits) || rest.size() < 3 || rest[0] != ' ' || (rest[1] != ' ' && rest[1] != '*')) continue;
    has_line = true;
    std::string_view name = rest.substr(2);
    if (name.starts_with("./")) name.remove_prefix(2);
    const auto [known, is_first] = checksums.emplace(name, lower(digits));
    if (!is_first && known->second != lower(digits)) return data_loss("{}: it has two different sums for '{}'", what, name);
  }
  if (!has_line && is_page) {
    return data_loss(
        "{}: this is a page for people (HTML), not what sha256sum prints: the server seems to answer every address with a page: "
        "check the URL, and whether the server wants a login first",
        what);
  }
  if (!has_line) return data_loss("{}: this is not what sha256sum prints: make it with `sha256sum * > SHA256SUMS`", what);
  return checksums;
}

Status check_names(const Checksums& checksums, const std::vector<std::string>& files, const std::string& what) {
  const auto is_named = [&](const std::string& file) { return checksums.contains(file); };
  if (checksums.empty() || std::ranges::any_of(files, is_named)) return {};
  const bool is_here = what.starts_with('/') || what.starts_with("file:");
  const std::string others = checksums.size() > 1 ? format(" and {} more", checksums.size() - 1) : "";
  return data_loss(
      "{}: it names none of the model's files beside it{}, so none of them would be verified. It names '{}'{}. Make it in the "
      "directory of the files, so that names are without a directory (for numbered versions in the directory of each): "
      "`cd DIRECTORY && sha256sum * > SHA256SUMS`, or remove it{}",
      what, files.empty() ? "" : format(" (such as '{}')", files.front()), shortened(checksums.begin()->first, kLongestShown),
      others, is_here ? "" : " (on a server its owner must do that)");
}

Status check_sum(const Checksums& checksums, const std::string& name, const std::string& found, const std::string& what) {
  const auto expected = checksums.find(name);
  if (expected == checksums.end() || expected->second == found) return {};
  return data_loss("{}: its SHA-256 is {}, and SHA256SUMS says {} for '{}': the file is damaged, or one of the two is old", what,
                   found, expected->second, name);
}

Result<std::string> sum_of(const Course& course, const std::filesystem::path& file, const std::string& name) {
  return sha256_of_file(file, [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    course.tell({.file = name + " (verifying)", .done_bytes = done_bytes, .total_bytes = total_bytes});
    return course.check();
  });
}

}  // namespace shoal::fetch
