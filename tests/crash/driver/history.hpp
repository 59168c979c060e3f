// The history of a client: what it asked and what it was answered. The client writes one line before it asks and one after it was
// answered. Lines are not buffered, so a killed client loses none.
//
//   ask ID TIME_NS MODEL SIZE SEED TIMEOUT_NS HOW       HOW: plain, cancel (given up at once), guilty (crashes its worker)
//   answer ID TIME_NS STATUS VERSION HASH ATTEMPTS STALLED_NS    ATTEMPTS: 0 if the client is not told
//   end                                                 everything that was asked has been answered
//
// Times are CLOCK_MONOTONIC. STALLED_NS is how long the client itself did not run between request and answer, because it was
// stopped or the machine was busy. It may have seen the answer that much later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include "shoal/tensor.hpp"

namespace shoal::test {

enum class How : std::uint8_t { kPlain, kCancel, kGuilty };

/// A request's answer depends on this and on the version that answers.
struct Question {
  std::string model;
  int size = 1;            ///< which of the model's sizes
  std::uint32_t seed = 0;  ///< which content
  friend auto operator<=>(const Question&, const Question&) = default;
};

struct Asked {
  std::uint64_t id = 0, time_ns = 0;
  Question question;
  std::uint64_t timeout_ns = 0;  ///< 0 = none
  How how = How::kPlain;
};
struct Answered {
  std::uint64_t id = 0, time_ns = 0;
  int status = 0;
  std::uint64_t version = 0, hash = 0;
  int attempts = 0;
  std::uint64_t stalled_ns = 0;
};
struct Ended {};
using HistoryLine = std::variant<Asked, Answered, Ended>;

std::string to_line(const HistoryLine& line);
/// Returns nothing when the line is not a record.
std::optional<HistoryLine> parse_line(const std::string& text);

/// Appends records to a file, with one write() per line. Aborts when the file cannot be written.
///   Threads  thread-compatible
class HistoryWriter {
 public:
  explicit HistoryWriter(const std::filesystem::path& file);
  ~HistoryWriter();
  HistoryWriter(const HistoryWriter&) = delete;
  HistoryWriter& operator=(const HistoryWriter&) = delete;
  void add(const HistoryLine& line) const;

 private:
  int fd_;
};

/// CRC-32 of the shape's text and the bytes, which every language has.
std::uint64_t hash_of(const Tensor& tensor);

}  // namespace shoal::test
