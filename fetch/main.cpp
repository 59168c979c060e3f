// shoal-fetch: fetches one model for the process that started it, or verifies one of this machine, answers and ends.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <string_view>

#include "fetch/model_fetch.hpp"
#include "fetch/sandbox.hpp"
#include "fetch/verified_model.hpp"
#include "shm/base/cache_directory.hpp"
#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/model/version_entry.hpp"
#include "shm/wire/control.hpp"

namespace {

namespace fs = std::filesystem;
using namespace shoal;
using namespace shoal::fetch;

constexpr std::uint64_t kTellEveryNs = 200'000'000;

/// Whoever asked is gone when its end of the socket is closed.
bool is_connected(int control) {
  pollfd end{control, POLLRDHUP, 0};
  return ::poll(&end, 1, 0) <= 0 || (end.revents & (POLLHUP | POLLRDHUP | POLLERR)) == 0;
}

Result<fs::path> make_cache() {
  const fs::path directory = fetch_directory();
  if (directory.empty()) return failed_precondition("there is no place for what is fetched: set SHOAL_CACHE_DIR or HOME");
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return status_from_errno("make the directory", directory.string(), error.value());
  return directory;
}

/// What libraries read of the user's files.
std::vector<fs::path> readable_files(const Location& location) {
  std::vector<fs::path> files;
  if (location.scheme == "file") files.push_back("/");  // its files may be links to anywhere
  if (const char* const home = std::getenv("HOME")) files.push_back(fs::path(home) / ".netrc");
  for (const char* const name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_CA_BUNDLE", "OPENSSL_CONF"}) {
    if (const char* const file = std::getenv(name)) files.push_back(file);
  }
  return files;
}

Result<FetchedModel> fetch(const ModelRequest& request, bool copies, int control) try {
  SHOAL_ASSIGN_OR_RETURN(const Location location, parse_location(request.path));
  SHOAL_ASSIGN_OR_RETURN(const Limits limits, limits_from_environment());
  std::uint64_t told_ns = 0;
  Course course(
      limits, [control] { return is_connected(control); },
      [&](const Course::Progress& progress) {
        if (monotonic_now_ns() - told_ns < kTellEveryNs) return;
        told_ns = monotonic_now_ns();
        (void)wire::send_control(
            control,
            {.kind = wire::ControlKind::kFetching, .a = progress.done_bytes, .b = progress.total_bytes, .text = progress.file});
      });
  if (location.scheme == "file" && !copies) {
    SHOAL_RETURN_IF_ERROR(fetch::enter_sandbox({}, {"/"}));
    return verify_model(request, course);
  }
  SHOAL_ASSIGN_OR_RETURN(const fs::path cache, make_cache());
  HttpClient client(course);
  SHOAL_ASSIGN_OR_RETURN(const auto source, make_source(location, client, course));
  SHOAL_RETURN_IF_ERROR(fetch::enter_sandbox(cache, readable_files(location)));
  return fetch_model(request, location, *source, client, course, cache);
} catch (const std::bad_alloc&) {
  return failed_precondition("{}: it takes more memory than a fetch may have: give the model a directory with fewer files",
                             request.path);
} catch (const std::exception& error) {
  return internal_error("{}: fetching it failed: {}: please report this", request.path, error.what());
}

Status serve(bool copies, int control) try {
  SHOAL_ASSIGN_OR_RETURN(const wire::Question asked, wire::receive_question(control));
  if (const Status same = wire::check_build(asked.build); !same.ok()) return wire::send_found(control, failure_text(same));
  SHOAL_ASSIGN_OR_RETURN(const FileQuestion question, parse_question(asked.text));
  const auto fetched = fetch(question.model, copies, control);
  return wire::send_found(control, fetched.ok() ? fetched_text(*fetched) : failure_text(fetched.status()));
} catch (const std::exception& error) {
  return wire::send_found(control, failure_text(internal_error("fetch: {}", error.what())));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 3 ? argv[1] : "";
  const int control = mode == "--find" || mode == "--copy" ? std::atoi(argv[2]) : -1;
  if (control < 3 || ::fcntl(control, F_SETFD, FD_CLOEXEC) != 0) {
    std::fprintf(stderr,
                 "usage: shoal-fetch --find FD, or --copy FD, which copies the files of a file:// URL, too\n"
                 "Started by shoald and shoal, which talk to it over the control socket FD. See shoal fetch --help.\n");
    return 2;
  }
  // A service manager's stop reaches every process, but only the daemon decides what follows.
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGTTIN, SIGTTOU}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Status served = serve(mode == "--copy", control);
  if (!served.ok()) std::fprintf(stderr, "shoal-fetch: %s\n", served.to_string().c_str());
  ::_exit(served.ok() ? 0 : 1);  // a thread may still look up a name
}
