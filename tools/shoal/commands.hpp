// The commands of `shoal`: each .cpp adds its words to the command line and says what runs when they were given.
#pragma once

#include <functional>

#include "tools/shoal/console.hpp"

namespace CLI {
class App;
}

namespace shoal::tool {

/// What a running command has.
struct Session {
  Console console;
  char** argv = nullptr;  ///< to execute the program again
};

struct Command {
  CLI::App* app = nullptr;  ///< owned by the application
  std::function<Finish(Session&)> run;
};

Command make_inspect(CLI::App& application);
Command make_run(CLI::App& application);
Command make_classify(CLI::App& application);
Command make_predict(CLI::App& application);
Command make_operators(CLI::App& application);
Command make_status(CLI::App& application);
Command make_top(CLI::App& application);
Command make_trace(CLI::App& application);
Command make_crashes(CLI::App& application);
Command make_load(CLI::App& application);
Command make_unload(CLI::App& application);
Command make_reload(CLI::App& application);
Command make_scale(CLI::App& application);
Command make_drain(CLI::App& application);
Command make_stop(CLI::App& application);

}  // namespace shoal::tool
