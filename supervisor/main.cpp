// shoald: starts the daemon with what its command line says.
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/base/cache_directory.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/fetch_timeout.hpp"
#include "shm/base/helper_program.hpp"
#include "shm/wire/local_address.hpp"
#include "supervisor/command_line.hpp"
#include "supervisor/daemon.hpp"
#include "supervisor/process/socket_directory.hpp"
#include "supervisor/stream_guard.hpp"

namespace {

namespace fs = std::filesystem;
using namespace shoal;
using namespace shoal::supervisor;

constexpr int kFetchSlackS = 15;  // a fetch that is late says so itself before it is killed

enum ExitCode { kSuccess = 0, kAtFault = 1, kUsage = 2 };

constexpr const char* kDescription =
    "Serves models from worker processes that share one copy of the weights.\n"
    "Clients meet the daemon in $SHOAL_DIR, else $XDG_RUNTIME_DIR/shoal, else /run/shoal.";
constexpr const char* kExamples =
    "Examples:\n"
    "  shoald --model shapes=models/shapes,workers=4      a checkpoint with its model.toml, four workers\n"
    "  shoald --model echo=builtin:identity               returns its input `data`: to try things out\n"
    "  shoald --model resnet=s3://models/resnet-50        https://, s3:// and hdfs:// are fetched first (docs: fetching-models)\n"
    "  shoald --config /etc/shoal.toml                    tables [models.NAME]: path, and any key of model.toml\n"
    "Then: shoal status, shoal predict NAME --input data=x.npy --output out, shoal stop.\n"
    "SIGHUP reads --config again: it loads new models, unloads removed ones, and reloads models whose files or keys\n"
    "changed. The old version serves until the new one answers. A configuration with an error changes nothing.\n"
    "SIGTERM drains: the daemon takes no new requests, answers the admitted ones, then exits. SHOAL_LOG=debug logs more.\n"
    "Exit codes: 0 stopped as asked, 1 could not start (the reason is on stderr), 2 usage.";

int fail(const Status& status, ExitCode code) {
  std::fprintf(stderr, "shoald: %s\n", status.message().c_str());
  return code;
}

Result<fs::path> find_worker_file(const std::string& given) {
  if (!given.empty()) {
    if (::access(given.c_str(), X_OK) == 0) return fs::absolute(given);
    return status_from_errno("run", "--worker " + given, errno);
  }
  fs::path file = helper_program("shoal-worker", program_directory());
  if (!file.empty()) return file;
  return not_found("shoal-worker is neither beside shoald in {} nor in ../libexec/shoal: name it with --worker FILE",
                   program_directory().string());
}

// Only models at URLs need it. If it is missing, their loads say so.
fs::path find_fetch_file() {
  const fs::path file = helper_program("shoal-fetch", program_directory());
  return file.empty() ? program_directory() / "shoal-fetch" : file;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void prepare_process() {
  const sigset_t set = daemon_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);  // before any thread starts: the daemon reads them from a signalfd
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // if a parent had it ignored, nobody would learn how a child ended; children inherit this
  // A group that may enter the directory of the sockets must not connect to those of lanes and of other clients.
  ::umask(0077);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // workers whose zygote died become our children
  raise_descriptor_limit();
}

void warn_of_environment(Logger& log) {
  const std::pair<const char*, std::vector<std::string_view>> variables[] = {
      {"SHOAL_LOG", {"debug", "info", "warn", "error", "off"}},
      {"SHOAL_LOG_FORMAT", {"text", "json"}},
      {"SHOAL_SANDBOX", {"on", "off"}}};
  for (const auto& [name, words] : variables) {
    const char* value = std::getenv(name);
    if (value && std::ranges::count(words, value) == 0)
      log.warn("unknown_word variable={} value=\"{}\" taken=default", name, value);
  }
}

/// Unlike the configuration's, this name may come from any name service: nobody waits for the daemon yet.
Result<gid_t> find_group(const std::string& given) {
  const std::string text = given.starts_with("gid:") ? given.substr(4) : given;
  if (const group* found = ::getgrnam(text.c_str())) return found->gr_gid;
  const auto number = account_number(text, "/etc/group");
  if (number.ok()) return *number;
  return not_found("--socket-group: there is no group '{}' ({})", given, number.status().message());
}

int serve(DaemonOptions options, const std::string& worker) {
  auto worker_file = find_worker_file(worker);
  if (!worker_file.ok()) return fail(worker_file.status(), kAtFault);
  options.fleet.worker_file = *std::move(worker_file);
  options.fleet.fetch_file = find_fetch_file();
  options.fleet.fetch_directory = fetch_directory();
  const auto fetch_s = fetch_timeout_s();
  if (!fetch_s.ok()) return fail(fetch_s.status(), kUsage);
  options.fleet.fetch_limit_ns = static_cast<std::uint64_t>(*fetch_s + kFetchSlackS) * 1'000'000'000;
  const std::string path = fs::absolute(wire::default_directory()).lexically_normal().string();
  auto directory = SocketDirectory::open(path);
  if (!directory.ok()) return fail(directory.status(), kAtFault);
  ::setenv("SHOAL_DIR", path.c_str(), 1);
  options.manager = ServiceManager::from_environment();
  prepare_process();
  Logger log("shoald", LogMode::kDropping);
  warn_of_environment(log);
  if (const Status kept = directory->keep_from_cleaners(); !kept.ok())
    log.warn("directory_unlocked reason=\"{}\": a cleaner of old files may remove its lock", kept.message());
  auto daemon = Daemon::start(std::move(options), *std::move(directory), log);
  if (daemon.status().code() == StatusCode::kCancelled) return kSuccess;
  if (!daemon.ok()) return fail(daemon.status(), kAtFault);
  guard_streams((*daemon)->shared_closer());
  (*daemon)->run();
  return kSuccess;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app(kDescription, "shoald");
  app.footer(kExamples);
  CommandLine line;
  add_options(app, line);
  app.set_version_flag("--version", "shoald " SHOAL_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSuccess : kUsage;
  }

  if (!line.log_format.empty()) ::setenv("SHOAL_LOG_FORMAT", line.log_format.c_str(), 1);
  if (line.config.empty() && line.models.empty())
    return fail(invalid_argument("no model to serve: give --model NAME=PATH or --config FILE (see --help)"), kUsage);
  DaemonOptions options;
  for (const std::string& argument : line.models) {
    auto parsed = parse_model_argument(argument);
    if (!parsed.ok()) return fail(parsed.status().with_context("--model"), kUsage);
    if (std::ranges::count(options.fleet.models, parsed->name, &ModelRequest::name) > 0)
      return fail(invalid_argument("model '{}' is given twice", parsed->name), kUsage);
    options.fleet.models.push_back(*std::move(parsed));
  }
  if (!line.socket_group.empty()) {
    const auto group = find_group(line.socket_group);
    if (!group.ok()) return fail(group.status(), kUsage);
    options.socket_group = *group;
  }
  if (!line.config.empty()) options.fleet.configuration_file = fs::absolute(line.config);
  return serve(std::move(options), line.worker);
} catch (const std::exception& error) {  // for example of std::filesystem, when the working directory was removed
  return fail(internal_error("{}", error.what()), kAtFault);
}
