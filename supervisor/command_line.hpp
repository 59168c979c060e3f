// The options of shoald.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace shoal::supervisor {

/// What the command line says.
struct CommandLine {
  std::vector<std::string> models;  ///< NAME=PATH[,KEY=VALUE...]
  std::string config, worker, socket_group, log_format;
};

/// Adds the options to `app`, for shoald itself, and for `shoal completion`. `line` must live as long as `app`.
void add_options(CLI::App& app, CommandLine& line);

}  // namespace shoal::supervisor
