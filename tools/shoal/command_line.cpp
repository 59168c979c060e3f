#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <exception>
#include <new>
#include <system_error>

#include "shm/base/errors.hpp"
#include "shm/base/helper_program.hpp"
#include "tools/shoal/commands.hpp"

namespace shoal::tool {
namespace {

Finish run(const Command& command, Invocation& invocation) try { return command.run(invocation); } catch (const std::bad_alloc&) {
  return out_of_memory("the command");
} catch (const std::system_error& error) {  // of files, too
  return error.code() == std::errc::resource_unavailable_try_again ? no_thread(error) : internal_error("{}", error.what());
} catch (const std::exception& error) {
  return internal_error("{}", error.what());
}

/// "shoal bench: The following arguments were not expected: --seconds 1": of a command line that cannot be parsed.
std::string wrong_usage(const CLI::App* application, const CLI::Error& error) {
  std::string command = application->get_name(), what = error.what();
  for (const CLI::App* const given : application->get_subcommands()) command += " " + given->get_name();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    const std::vector<std::string> extras = application->remaining(true);
    if (!extras.empty()) what = CLI::ExtrasError({extras.rbegin(), extras.rend()}).what();  // it turns them round
  }
  return printable(format("{}: {}\nRun with --help for more information.\n", command, what));
}

}  // namespace

Finish become(const char* program, char** argv) {
  const std::string file = helper_program(program, program_directory());
  if (file.empty())
    return not_found("{} is neither beside shoal in {} nor in ../libexec/shoal", program, program_directory().string());
  ::execv(file.c_str(), argv);
  return status_from_errno("run", file, errno);
}

int run_command_line(CLI::App& application, std::span<const Command> commands, int argc, char** argv) {
  application.require_subcommand(1);
  application.failure_message(wrong_usage);
  try {
    application.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return application.exit(error) == 0 ? kSuccess : kUsage;
  }
  Invocation invocation{.argv = argv};
  for (const Command& command : commands) {
    if (command.app->parsed()) return invocation.console.finish(run(command, invocation));
  }
  return kUsage;
}

}  // namespace shoal::tool
