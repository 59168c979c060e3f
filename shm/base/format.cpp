#include "shm/base/format.hpp"

#include <array>
#include <charconv>
#include <locale>
#include <sstream>

namespace shoal::internal {
namespace {

template <typename Number>
void append_number(std::string& out, Number number) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

}  // namespace

void FormatArgument::append_to(std::string& out) const {
  switch (kind_) {
    case Kind::kText:
      out += text_;
      return;
    case Kind::kSigned:
      return append_number(out, static_cast<long long>(number_));
    case Kind::kUnsigned:
      return append_number(out, number_);
    case Kind::kOther:
      std::ostringstream stream;
      stream.imbue(std::locale::classic());
      stream.exceptions(std::ios_base::badbit);  // otherwise a stream keeps std::bad_alloc for itself
      write_(stream, value_);
      out += stream.view();
      return;
  }
}

std::string format_all(std::string_view pattern, std::initializer_list<FormatArgument> arguments) {
  std::string out;
  for (const FormatArgument& argument : arguments) {
    const std::size_t hole = pattern.find("{}");
    out += pattern.substr(0, hole);
    if (hole == pattern.npos) return out;
    argument.append_to(out);
    pattern.remove_prefix(hole + 2);
  }
  out += pattern;
  return out;
}

}  // namespace shoal::internal
