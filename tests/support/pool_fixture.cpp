#include "tests/support/pool_fixture.hpp"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "shm/base/check.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::string binary(const std::string& name) {
  return name.find('/') != std::string::npos ? name : (binary_directory() / name).string();
}

std::string read_file(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kIsSanitized = true;  // and so are the daemon and the workers
#else
constexpr bool kIsSanitized = false;
#endif
constexpr auto kSanitizedEnd = std::chrono::seconds(60);  // to drain, end and look for leaks

// The state of a process or thread: 'R', 'S', 'T', 'Z' ...; 'X' when it does not exist.
char state_of(const fs::path& task) {
  const std::string stat = read_file(task / "stat");
  const auto after_name = stat.rfind(')');
  return after_name != std::string::npos && after_name + 2 < stat.size() ? stat[after_name + 2] : 'X';
}

}  // namespace

fs::path binary_directory() { return fs::read_symlink("/proc/self/exe").parent_path(); }

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

bool is_alive(pid_t pid) {
  const char state = state_of("/proc/" + std::to_string(pid));
  return state != 'Z' && state != 'X';
}

void stop_process(pid_t pid) {
  ::kill(pid, SIGSTOP);
  EXPECT_TRUE(eventually([&] {
    std::error_code error;
    for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
      if (state_of(task.path()) != 'T') return false;
    }
    return true;
  }));
}

StoppedModel::StoppedModel(const DaemonFixture& daemon, const std::string& model) : zygote_(daemon.zygote(model)) {
  stop_process(zygote_);
  for (const pid_t worker : daemon.workers(model)) stop_process(worker);
}

void StoppedModel::go_on() { ::kill(zygote_, SIGCONT); }

std::vector<pid_t> processes_of(const std::string& directory) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = '\0' + read_file(entry.path() / "environ") + '\0';
    if (environment.find(std::string(1, '\0') + "SHOAL_DIR=" + directory + '\0') == std::string::npos) continue;
    if (const pid_t pid = std::stoi(name); pid != ::getpid() && is_alive(pid)) pids.push_back(pid);
  }
  return pids;
}

CommandResult run_shoald(const std::string& arguments, const std::string& directory) {
  CommandResult result;
  // A file and not a pipe: a child that the daemon leaves behind keeps its end of a pipe open.
  std::FILE* const output = std::tmpfile();
  SHOAL_CHECK(output != nullptr);
  const std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(::fileno(output));
  const int status = std::system(
      ("SHOAL_DIR=" + directory + " timeout 20 " + binary("shoald") + " " + arguments + " >" + path + " 2>&1").c_str());
  char buffer[4096];
  for (std::size_t size; (size = std::fread(buffer, 1, sizeof buffer, output)) > 0;) result.output.append(buffer, size);
  std::fclose(output);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

Tensor counting(const Shape& shape, float first) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape).value();
  std::iota(tensor.values<float>().begin(), tensor.values<float>().end(), first);
  return tensor;
}

DaemonFixture::DaemonFixture(DaemonSettings settings) : settings_(std::move(settings)) {
  directory_ = settings_.parent + "/shoal-test-XXXXXX";
  SHOAL_CHECK(::mkdtemp(directory_.data()) != nullptr);
  log_file_ = directory_ + "/log.txt";
  if (kIsSanitized) {
    // Reports go to files that the destructor looks for: a worker that a report ended is replaced, and nobody else would notice.
    // Lanes have alternate stacks of their own, which ASan would unmap when they end (use_sigaltstack).
    // abort_on_error: a worker with a report crashes, and not only ends.
    settings_.environment.push_back("ASAN_OPTIONS=use_sigaltstack=0:abort_on_error=1:log_path=" + directory_ + "/sanitizer");
    settings_.environment.push_back("UBSAN_OPTIONS=print_stacktrace=1:log_path=" + directory_ + "/sanitizer");
  }
  if (!settings_.limits.empty()) {
    std::ofstream(limits_file()) << "[limits]\n" << settings_.limits << "\n";
    settings_.arguments.insert(settings_.arguments.end(), {"--config", limits_file()});
  }
  start();
}

void DaemonFixture::change_limits(const std::string& limits) {
  std::ofstream(limits_file()) << "[limits]\n" << limits << "\n";
  ::kill(pid_, SIGHUP);
}

DaemonFixture::~DaemonFixture() {
  const bool has_failed = testing::Test::HasFailure() || std::uncaught_exceptions() > 0;
  int status = 0;
  if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    pid_ = -1;
    if (has_failed) {
      std::fprintf(stderr, "---- the daemon had ended: %s %d ----\n", WIFSIGNALED(status) ? "signal" : "exit code",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
  }
  if (has_failed) std::fprintf(stderr, "---- the daemon's log ----\n%s----\n", log().c_str());
  if (kIsSanitized && pid_ > 0) {  // by itself, so that it looks for leaks
    for (const pid_t pid : processes_of(directory_)) ::kill(pid, SIGCONT);
    ::kill(pid_, SIGTERM);
    EXPECT_EQ(wait_for_exit(kSanitizedEnd), 0) << "the daemon's exit code after SIGTERM\n" << log();
  }
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const pid_t pid : processes_of(directory_)) ::kill(pid, SIGCONT);  // a test may have stopped them
  // Zygotes and workers end by themselves when their supervisor is gone. The test fails for one that does not, and it is killed.
  const bool gone = eventually([&] { return processes_of(directory_).empty(); }, std::chrono::seconds(5));
  EXPECT_TRUE(gone) << "processes of " << directory_ << " outlive their supervisor";
  for (const pid_t pid : processes_of(directory_)) ::kill(pid, SIGKILL);
  if (const std::string reports = take_sanitizer_reports(); !reports.empty()) ADD_FAILURE() << reports;
  fs::remove_all(directory_);
}

std::string DaemonFixture::take_sanitizer_reports() const {
  std::string reports;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (!entry.path().filename().string().starts_with("sanitizer.")) continue;
    reports += read_file(entry.path());
    fs::remove(entry.path());
  }
  // GCC's UndefinedBehaviorSanitizer ignores log_path beside AddressSanitizer and writes to stderr, which is the log.
  const std::string log = this->log();
  if (const auto first = log.find("runtime error:", judged_log_bytes_); kIsSanitized && first != log.npos)
    reports += log.substr(log.rfind('\n', first) + 1);
  judged_log_bytes_ = log.size();
  return reports;
}

void DaemonFixture::start(const std::function<void(pid_t)>& stopped) {
  const int log = ::open(log_file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string program = binary("shoald");
  if (settings_.user != 0) SHOAL_CHECK(::chown(directory_.c_str(), settings_.user, settings_.user) == 0);
  std::vector<std::string> arguments = {program};
  for (const std::string& model_argument : settings_.models) {
    arguments.push_back("--model");
    arguments.push_back(model_argument);
  }
  if (!settings_.worker.empty()) {
    arguments.push_back("--worker");
    arguments.push_back(binary(settings_.worker));
  }
  arguments.insert(arguments.end(), settings_.arguments.begin(), settings_.arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::setenv("SHOAL_DIR", directory_.c_str(), 1);
  pid_ = ::fork();
  if (pid_ == 0) {
    for (std::string& variable : settings_.environment) ::putenv(variable.data());
    ::dup2(log, STDERR_FILENO);
    ::dup2(log, STDOUT_FILENO);
    if (settings_.user != 0 && (::setgroups(settings_.groups.size(), settings_.groups.data()) != 0 ||
                                ::setgid(settings_.user) != 0 || ::setuid(settings_.user) != 0))
      ::_exit(126);
    if (stopped) ::raise(SIGSTOP);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(log);
  ::unsetenv("SHOAL_DIR");  // otherwise processes_of() finds the children of this process
  if (stopped) {
    ::waitpid(pid_, nullptr, WUNTRACED);
    return stopped(pid_);
  }
  if (settings_.wait_until_ready && !wait_until_ready()) ADD_FAILURE() << "the daemon is not ready:\n" << this->log();
}

namespace {
// A machine under load may let a daemon wait for seconds. Tests of its silence ask for less.
constexpr std::chrono::seconds kPatience{30};
}  // namespace

Pool DaemonFixture::connect(PoolOptions options) const {
  options.directory = directory_;
  if (options.control_timeout == PoolOptions{}.control_timeout) options.control_timeout = kPatience;
  return Pool::connect(options).value();
}

nlohmann::json DaemonFixture::stats() const {
  auto pool = Pool::connect({.directory = directory_, .arena_limit_bytes = 0, .control_timeout = kPatience});
  if (!pool.ok()) return {};
  auto text = pool->stats();
  return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json();
}

nlohmann::json DaemonFixture::model(const std::string& name) const {
  const nlohmann::json all = stats();
  if (!all.is_object()) return {};
  for (const auto& one : all.at("models")) {
    if (one.at("name") == name) return one;
  }
  return {};
}

std::vector<pid_t> DaemonFixture::workers(const std::string& model_name) const {
  std::vector<pid_t> pids;
  const nlohmann::json one = model(model_name);
  if (!one.is_object()) return pids;
  for (const auto& worker : one.at("workers")) {
    if (worker.at("state") == "ready") pids.push_back(worker.at("pid").get<pid_t>());
  }
  return pids;
}

pid_t DaemonFixture::zygote(const std::string& model_name) const {
  const nlohmann::json one = model(model_name);
  return one.is_object() && one.at("zygote").at("pid").is_number() ? one.at("zygote").at("pid").get<pid_t>() : -1;
}

std::vector<pid_t> DaemonFixture::all_processes() const { return processes_of(directory_); }

std::string DaemonFixture::log() const { return read_file(log_file_); }

bool DaemonFixture::logs(std::string_view text) const {
  return eventually([&] { return log().find(text) != std::string::npos; });
}

bool DaemonFixture::wait_until_ready(std::chrono::milliseconds limit) const {
  return eventually(
      [&] {
        const nlohmann::json all = stats();
        if (!all.is_object()) return false;
        return std::ranges::all_of(all.at("models"), [](const auto& one) {
          return std::ranges::count_if(one.at("workers"), [](const auto& worker) { return worker.at("state") == "ready"; }) ==
                 one.at("wanted_workers").template get<int>();
        });
      },
      limit);
}

int DaemonFixture::wait_for_exit(std::chrono::milliseconds limit) {
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit)) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace shoal::test
