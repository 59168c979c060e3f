#include "tests/crash/driver/history.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <sstream>

#include "shm/base/check.hpp"

namespace shoal::test {
namespace {
constexpr std::array<const char*, 3> kHowNames = {"plain", "cancel", "guilty"};
}

std::string to_line(const HistoryLine& line) {
  std::ostringstream text;
  if (const auto* asked = std::get_if<Asked>(&line)) {
    text << "ask " << asked->id << ' ' << asked->time_ns << ' ' << asked->question.model << ' ' << asked->question.size << ' '
         << asked->question.seed << ' ' << asked->timeout_ns << ' ' << kHowNames[static_cast<std::size_t>(asked->how)];
  } else if (const auto* answered = std::get_if<Answered>(&line)) {
    text << "answer " << answered->id << ' ' << answered->time_ns << ' ' << answered->status << ' ' << answered->version << ' '
         << answered->hash << ' ' << answered->attempts << ' ' << answered->stalled_ns;
  } else {
    text << "end";
  }
  text << '\n';
  return text.str();
}

std::optional<HistoryLine> parse_line(const std::string& text) {
  std::istringstream words(text);
  std::string what;
  words >> what;
  if (what == "end") return Ended{};
  if (what == "ask") {
    Asked asked;
    std::string how;
    words >> asked.id >> asked.time_ns >> asked.question.model >> asked.question.size >> asked.question.seed >>
        asked.timeout_ns >> how;
    for (std::size_t i = 0; i < kHowNames.size(); ++i) {
      if (how != kHowNames[i]) continue;
      asked.how = static_cast<How>(i);
      return asked;
    }
  } else if (what == "answer") {
    Answered answered;
    words >> answered.id >> answered.time_ns >> answered.status >> answered.version >> answered.hash >> answered.attempts >>
        answered.stalled_ns;
    if (words) return answered;
  }
  return std::nullopt;
}

HistoryWriter::HistoryWriter(const std::filesystem::path& file)
    : fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
  SHOAL_CHECK(fd_ >= 0);
}
HistoryWriter::~HistoryWriter() { ::close(fd_); }

void HistoryWriter::add(const HistoryLine& line) const {
  const std::string text = to_line(line);
  SHOAL_CHECK(::write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

std::uint64_t hash_of(const Tensor& tensor) {
  const std::string shape = tensor.shape().to_string();
  const auto bytes = tensor.view().bytes();
  return ::crc32_z(::crc32_z(0, reinterpret_cast<const Bytef*>(shape.data()), shape.size()),
                   reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

}  // namespace shoal::test
