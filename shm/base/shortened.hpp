// What comes from outside may be of any length; a message may not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shoal {

/// `text` when it has at most `most_bytes`, else its beginning and its end with " ... " between them: the cause stands at the end
/// of a message. UTF-8 is not cut within a character.
std::string shortened(std::string_view text, std::size_t most_bytes);

}  // namespace shoal
