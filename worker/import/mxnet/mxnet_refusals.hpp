// Why Shoal does not have some operators of MXNet, for those who read the error.
#pragma once

#include <string_view>

namespace shoal::worker {

/// The reason, as the end of a sentence: "it draws random numbers". Empty for operators that it knows nothing about.
std::string_view why_refused(std::string_view mxnet_name);

}  // namespace shoal::worker
