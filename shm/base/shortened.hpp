// Shortens texts from outside, so that messages have a bounded length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shoal {

/// Returns `text` if it has at most `most_bytes` bytes, else its beginning and its end with " ... " in between. The end is kept
/// because messages name the cause there. Never cuts inside a UTF-8 character.
std::string shortened(std::string_view text, std::size_t most_bytes);

}  // namespace shoal
