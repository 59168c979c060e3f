// What a command says while the daemon changes a model.
#pragma once

#include <string>

namespace shoal::tool {

/// "version 2 is loading, 1 of 4 workers": the state of the model's version that is being loaded, else of one that restarts or is
/// drained; else "waiting".
///   stats  what the daemon answers; no error if that has another form
std::string state_of(const std::string& name, const std::string& stats);

}  // namespace shoal::tool
