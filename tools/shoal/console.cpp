#include "tools/shoal/console.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"

namespace shoal::tool {
namespace {

constexpr std::uint64_t kShowAfterNs = 1'000'000'000, kShowEveryNs = 100'000'000;
constexpr int kBarWidth = 30;

/// Writes to the descriptor, because stderr's buffer may hold output of libraries.
void write_error_line(std::string line) {
  std::ranges::replace(line, '\n', ' ');
  ::dprintf(STDERR_FILENO, "%s\n", printable(std::move(line)).c_str());
}

/// The columns of a UTF-8 text on a terminal, if every character takes one.
std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

Finish daemon_failure(Status why) {
  if (why.ok()) return {};
  const StatusCode code = why.code();
  const bool lies_with_daemon =
      code == StatusCode::kUnavailable || code == StatusCode::kOverloaded || code == StatusCode::kPermissionDenied;
  return {std::move(why), lies_with_daemon ? kNotAvailable : kAtFault};
}

Finish usage_failure(Status why) { return {std::move(why), kUsage}; }

Finish no_thread(const std::system_error& why) {
  return Status(
      StatusCode::kFailedPrecondition,
      format("a thread of the command cannot be started: {}: this user's limit of processes and threads (ulimit -u) may be "
             "reached",
             why.what()));
}

std::string not_empty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }

std::string not_nan(const std::string& text) { return std::isnan(std::strtod(text.c_str(), nullptr)) ? "not a number" : ""; }

void Console::hold_library_messages() { std::setvbuf(stderr, nullptr, _IOFBF, BUFSIZ); }

int Console::finish(const Finish& finish) {
  Finish end = finish;
  errno = 0;
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && end.status.ok())
    end = Finish(status_from_errno("write", "standard output", errno == 0 ? EIO : errno));
  if (!end.status.ok()) write_error_line("shoal: " + end.status.to_string());
  for (const std::string& warning : warnings_) write_error_line("shoal: warning: " + warning);
  std::fflush(stderr);
  return end.code;
}

Progress::Progress(std::string what, std::size_t total)
    : what_(std::move(what)),
      total_(total),
      started_ns_(monotonic_now_ns()),
      shown_ns_(started_ns_),
      is_terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (is_visible_) ::dprintf(STDERR_FILENO, "\r\033[K");
}

bool Progress::is_time() {
  const std::uint64_t now_ns = monotonic_now_ns();
  if (!is_terminal_ || now_ns - started_ns_ < kShowAfterNs || now_ns - shown_ns_ < kShowEveryNs) return false;
  shown_ns_ = now_ns;
  is_visible_ = true;
  return true;
}

void Progress::show(const std::function<std::string()>& state) {
  if (!is_time()) return;
  ::dprintf(STDERR_FILENO, "\r%s: %s, %llu s\033[K", what_.c_str(), state().c_str(),
            static_cast<unsigned long long>((shown_ns_ - started_ns_) / 1'000'000'000));
}

void Progress::show(std::size_t done) {
  if (!is_time()) return;
  const std::size_t filled = total_ == 0 ? 0 : static_cast<std::size_t>(kBarWidth) * std::min(done, total_) / total_;
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  ::dprintf(STDERR_FILENO, "\r%s [%s] %zu of %zu\033[K", what_.c_str(), bar.c_str(), done, total_);
}

std::string printable(std::string text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_c1 = byte(i) == 0xc2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xa0;  // some terminals obey these, too
    if (is_c1) text.replace(i, 2, "?");
    if ((byte(i) < 0x20 && byte(i) != '\n') || byte(i) == 0x7f) text[i] = '?';
  }
  return text;
}

std::string align_columns(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right_aligned) {
  std::vector<std::size_t> widths(right_aligned.size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - columns_of(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (right_aligned[i] ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return printable(std::move(text));
}

std::string number_text(double number, const char* pattern) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), pattern, number);
  return text.data();
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  return format("{} {}", number_text(value, unit == 0 ? "%.0f" : "%.1f"), kUnits[unit]);
}

Status write_file(const std::filesystem::path& file, std::string_view bytes) {
  errno = 0;
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  out.close();
  return out ? Status() : status_from_errno("write", file.string(), errno == 0 ? EIO : errno);
}

}  // namespace shoal::tool
