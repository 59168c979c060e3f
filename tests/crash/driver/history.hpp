// What a client asks and what came of it, written down by the client itself, a line each, before it asks and after it was
// answered. The file lies outside the system under test; a client that is killed loses no line it had written.
//
//   ask ID TIME_NS MODEL SIZE SEED TIMEOUT_NS HOW       HOW: plain, cancel (given up at once), guilty (crashes its worker)
//   answer ID TIME_NS STATUS VERSION HASH ATTEMPTS STALLED_NS
//   end                                                 everything that was asked has been answered
//
// Times are CLOCK_MONOTONIC. STALLED_NS: how much longer than wanted the client's own sleeps took since it asked; by that much it
// may have seen the answer late (it was stopped, or the machine was busy).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include "shoal/tensor.hpp"

namespace shoal::test {

enum class How : std::uint8_t { kPlain, kCancel, kGuilty };

/// What decides a request's answer, besides the version that answers.
struct Question {
  std::string model;
  int size = 1;            ///< which of the model's sizes
  std::uint32_t seed = 0;  ///< which of its contents
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
/// Nothing when it is none of ours.
std::optional<HistoryLine> parse_line(const std::string& text);

/// Appends to a file, one unbuffered write a line. Aborts when the file cannot be written.
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

/// FNV-1a over shape and bytes.
std::uint64_t hash_of(const Tensor& tensor);

}  // namespace shoal::test
