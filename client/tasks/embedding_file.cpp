#include "client/tasks/embedding_file.hpp"

#include <algorithm>
#include <charconv>
#include <new>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/base/regular_file.hpp"

namespace shoal::tasks {
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 20, kBlock = std::size_t{1} << 16;
constexpr std::string_view kDelimiters = " \t";

/// The lines of a file, which may be larger than memory.
class LineReader {
 public:
  static Result<LineReader> open(const std::filesystem::path& file) {
    SHOAL_ASSIGN_OR_RETURN(RegularFile opened, open_regular_file(file));
    return LineReader(std::move(opened.fd), file.native());
  }

  /// The next line without its end; nothing behind the last one. Valid until the next call.
  Result<std::optional<std::string_view>> next() {
    std::size_t end = buffer_.find('\n', begin_);
    while (end == std::string::npos && !is_at_end_ && buffer_.size() - begin_ <= kLongestLine) {
      SHOAL_RETURN_IF_ERROR(fill());
      end = buffer_.find('\n');
    }
    ++number_;
    if (end == std::string::npos && !is_at_end_)
      return invalid_argument("{}:{}: the line has more than {} bytes", name_, number_, kLongestLine);
    if (begin_ >= buffer_.size()) return std::optional<std::string_view>();
    std::string_view line = std::string_view(buffer_).substr(begin_, end == std::string::npos ? end : end - begin_);
    begin_ = end == std::string::npos ? buffer_.size() : end + 1;
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);  // as MXNet does; fastText ends lines with a space
    return std::optional(line);
  }

  const std::string& name() const { return name_; }
  Status error(std::string_view what) const { return invalid_argument("{}:{}: {}", name_, number_, what); }

 private:
  LineReader(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  /// Drops what was given away, and reads more.
  Status fill() {
    buffer_.erase(0, std::exchange(begin_, 0));
    const std::size_t kept = buffer_.size(), room = std::clamp(2 * kept, kBlock, kLongestLine + 1) - kept;
    buffer_.resize(kept + room);
    SHOAL_ASSIGN_OR_RETURN(const std::size_t size,
                           read_fully(fd_.get(), std::as_writable_bytes(std::span(buffer_).subspan(kept)), name_));
    buffer_.resize(kept + size);
    is_at_end_ = size < room;
    return {};
  }

  UniqueFd fd_;
  std::string name_, buffer_;
  std::size_t begin_ = 0, number_ = 0;
  bool is_at_end_ = false;
};

template <typename Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

/// Where the last word of a line begins, and the delimiter before it; npos if there is only one word.
std::size_t last_delimiter(std::string_view line) { return line.empty() ? line.npos : line.find_last_of(kDelimiters); }

/// How fastText begins.
struct Head {
  std::size_t tokens = 0, width = 0;
};

std::optional<Head> head_in(std::string_view line) {
  const std::size_t at = last_delimiter(line);
  Head head;
  if (at == line.npos || !parse(line.substr(0, at), head.tokens) || !parse(line.substr(at + 1), head.width)) return {};
  return head;
}

class RowReader {
 public:
  RowReader(LineReader& lines, std::string_view unknown_token) : lines_(lines), unknown_(unknown_token) {}

  Result<EmbeddingRows> read() {
    std::size_t wanted = 0, found = 0;
    for (bool is_first = true;; is_first = false) {
      SHOAL_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines_.next());
      if (!line) break;
      if (line->empty()) continue;
      if (const auto head = is_first ? head_in(*line) : std::nullopt) {
        SHOAL_RETURN_IF_ERROR(begin(head->width));
        wanted = head->tokens;
      } else {
        SHOAL_RETURN_IF_ERROR(add(*line));
        ++found;
      }
    }
    if (found < wanted)
      return data_loss("{}: the file is truncated: its first line says {} vectors, and it has {}", lines_.name(), wanted, found);
    if (found == 0) return lines_.error("the file has no vectors");
    return std::move(rows_);
  }

 private:
  Status begin(std::size_t width) {
    if (width < 1 || width > kLongestLine) return lines_.error(format("vectors of {} numbers are not possible", width));
    rows_.width = width;
    if (unknown_.empty()) return {};
    rows_.tokens.emplace_back(unknown_);
    rows_.numbers.resize(width);
    return {};
  }

  Status add(std::string_view line) {
    if (rows_.width == 0)
      SHOAL_RETURN_IF_ERROR(begin(
          static_cast<std::size_t>(std::ranges::count_if(line, [](char c) { return kDelimiters.find(c) != kDelimiters.npos; }))));
    row_.resize(rows_.width);
    std::string_view token = line;
    for (std::size_t i = rows_.width; i-- > 0;) {
      const std::size_t at = last_delimiter(token);
      double number = 0;
      if (at == token.npos || at == 0) return lines_.error(format("the line needs a token and {} numbers", rows_.width));
      if (!parse(token.substr(at + 1), number))
        return lines_.error(
            format("'{}' is not a number (a token and {} numbers are expected)", token.substr(at + 1), rows_.width));
      row_[i] = static_cast<float>(number);
      token = token.substr(0, at);
    }
    if (!seen_.insert(std::string(token)).second) return {};
    if (!unknown_.empty() && token == unknown_) {
      std::ranges::copy(row_, rows_.numbers.begin());
      return {};
    }
    rows_.tokens.emplace_back(token);
    rows_.numbers.insert(rows_.numbers.end(), row_.begin(), row_.end());
    return {};
  }

  LineReader& lines_;
  const std::string_view unknown_;
  EmbeddingRows rows_;
  std::vector<float> row_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

Result<EmbeddingRows> read_embedding_file(const std::filesystem::path& file, std::string_view unknown_token) try {
  SHOAL_ASSIGN_OR_RETURN(LineReader lines, LineReader::open(file));
  return RowReader(lines, unknown_token).read();
} catch (const std::bad_alloc&) {
  return out_of_memory(file.native());
}

Result<std::vector<std::string>> read_vocabulary(const std::filesystem::path& file) try {
  SHOAL_ASSIGN_OR_RETURN(LineReader lines, LineReader::open(file));
  std::vector<std::string> tokens;
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines.next());
    if (!line) return tokens;
    tokens.emplace_back(*line);
  }
} catch (const std::bad_alloc&) {
  return out_of_memory(file.native());
}

}  // namespace shoal::tasks
