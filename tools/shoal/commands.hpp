// The commands of `shoal`. Each .cpp adds its command to the command line and returns the function that runs it.
#pragma once

#include <functional>
#include <span>

#include "tools/shoal/console.hpp"

namespace CLI {
class App;
}

namespace shoal::tool {

/// A call of `shoal`, which runs one command.
struct Invocation {
  Console console;
  char** argv = nullptr;  ///< to execute the program again
};

struct Command {
  CLI::App* app = nullptr;  ///< owned by the application
  std::function<Finish(Invocation&)> run;
};

/// Parses the command line and runs the command that it names. What a command throws becomes its error. Returns the exit code.
int run_command_line(CLI::App& application, std::span<const Command> commands, int argc, char** argv);

/// Becomes another program of this project, which needs libraries that would make every command start slowly. Returns only if
/// that fails.
Finish become(const char* program, char** argv);

Command make_inspect(CLI::App& application);
Command make_run(CLI::App& application);
Command make_classify(CLI::App& application);
Command make_detect(CLI::App& application);
Command make_predict(CLI::App& application);
Command make_bench(CLI::App& application);
Command make_operators(CLI::App& application);
Command make_fetch(CLI::App& application);
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
Command make_completion(CLI::App& application);

}  // namespace shoal::tool
