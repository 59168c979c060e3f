#include "tests/crash/step/tracee.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "shm/base/check.hpp"
#include "tests/support/pool_fixture.hpp"

namespace shoal::test {
namespace {

using namespace std::chrono_literals;
constexpr auto kLimit = 60s;

std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  return bytes.str();
}

template <typename T>
T read_at(const std::string& bytes, std::size_t offset) {
  T value;
  SHOAL_CHECK(offset + sizeof value <= bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Returns "shoal::worker::Lane::answer" for the mangled "shoal::worker::Lane::answer(shoal::worker::RequestRunner&, ...)", and
// nothing for clones such as "... [clone .cold]" and for what is local to a function, such as its lambdas.
std::string bare_name(const char* mangled) {
  if (std::strchr(mangled, '.') || std::strncmp(mangled, "_ZZ", 3) == 0) return {};
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = text ? text : "";
  std::free(text);
  const std::string anonymous = "(anonymous namespace)";
  for (auto at = name.find(anonymous); at != std::string::npos; at = name.find(anonymous))
    name.replace(at, anonymous.size(), "_");
  return name.substr(0, name.find('('));
}

std::map<std::string, std::uint64_t> functions_in(const std::filesystem::path& program) {
  const std::string bytes = read_file(program);
  const auto header = read_at<Elf64_Ehdr>(bytes, 0);
  std::map<std::string, std::uint64_t> functions;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const auto table = read_at<Elf64_Shdr>(bytes, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (table.sh_type != SHT_SYMTAB) continue;
    const auto names = read_at<Elf64_Shdr>(bytes, header.e_shoff + table.sh_link * sizeof(Elf64_Shdr));
    for (std::size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(bytes, table.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0) continue;
      const char* mangled = bytes.c_str() + names.sh_offset + symbol.st_name;
      if (!std::strstr(mangled, "shoal")) continue;
      if (std::string name = bare_name(mangled); !name.empty()) functions.emplace(std::move(name), symbol.st_value);
    }
  }
  return functions;
}

}  // namespace

Symbols::Symbols(const Tracee& stopped) {
  const std::string proc = "/proc/" + std::to_string(stopped.thread());
  const std::string program = std::filesystem::read_symlink(proc + "/exe");
  static std::map<std::string, std::map<std::string, std::uint64_t>> known;
  if (!known.contains(program)) known[program] = functions_in(program);
  functions_ = &known[program];
  std::ifstream maps(proc + "/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, offset = 0;
    char rights[8] = {};
    if (!line.ends_with(program) || std::sscanf(line.c_str(), "%lx-%lx %7s %lx", &begin, &end, rights, &offset) != 4) continue;
    if (offset == 0 && base_ == 0) base_ = begin;
    if (rights[2] == 'x') text_begin_ = begin, text_end_ = end;
  }
  EXPECT_NE(base_, 0u) << "/proc/" << stopped.thread() << "/maps does not hold " << program;
}

std::uint64_t Symbols::address(const std::string& function) const {
  const auto found = functions_->find(function);
  if (found != functions_->end()) return base_ + found->second;
  ADD_FAILURE() << "the program has no function " << function << ": was it renamed or inlined?";
  return 0;
}

namespace {

// Waits until the thread stops for `event`. Other stops are continued, with their signals.
bool wait_for_event(pid_t tid, int event) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (std::chrono::steady_clock::now() < end) {
    int status = 0;
    if (::waitpid(tid, &status, __WALL | WNOHANG) != tid) {
      std::this_thread::sleep_for(100us);
    } else if (!WIFSTOPPED(status)) {
      return false;
    } else if (status >> 16 == event) {
      return true;
    } else {
      ::ptrace(PTRACE_CONT, tid, 0, status >> 16 == 0 ? WSTOPSIG(status) : 0);
    }
  }
  return false;
}

bool has_argument(pid_t pid, const std::string& argument) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  for (std::string each; std::getline(file, each, '\0');) {
    if (each == argument) return true;
  }
  return false;
}

}  // namespace

BirthTrap::BirthTrap(pid_t parent) : parents_{parent} {
  constexpr long kBirths = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
  EXPECT_EQ(::ptrace(PTRACE_SEIZE, parent, 0, kBirths), 0) << "cannot trace " << parent << ": " << std::strerror(errno);
}

BirthTrap::~BirthTrap() {
  for (const pid_t parent : parents_) {
    ::ptrace(PTRACE_INTERRUPT, parent, 0, 0);
    int status = 0;
    if (::waitpid(parent, &status, __WALL) == parent && WIFSTOPPED(status)) ::ptrace(PTRACE_DETACH, parent, 0, 0);
  }
}

pid_t BirthTrap::next_child() {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (std::chrono::steady_clock::now() < end && !parents_.empty()) {
    for (std::size_t i = 0; i < parents_.size(); ++i) {
      const pid_t parent = parents_[i];
      int status = 0;
      if (::waitpid(parent, &status, __WALL | WNOHANG) != parent) continue;
      if (!WIFSTOPPED(status)) {
        parents_.erase(parents_.begin() + static_cast<std::ptrdiff_t>(i--));
        continue;
      }
      const int event = status >> 16;
      unsigned long born = 0;
      const bool is_child = event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK;
      if (is_child || event == PTRACE_EVENT_CLONE) ::ptrace(PTRACE_GETEVENTMSG, parent, 0, &born);
      ::ptrace(PTRACE_CONT, parent, 0, event == 0 ? WSTOPSIG(status) : 0);
      if (is_child) return static_cast<pid_t>(born);
      if (event == PTRACE_EVENT_CLONE) parents_.push_back(static_cast<pid_t>(born));
    }
    std::this_thread::sleep_for(100us);
  }
  return -1;
}

pid_t BirthTrap::wait(const std::string& argument) {
  while (true) {
    const pid_t pid = next_child();
    if (pid < 0) return -1;
    if (!wait_for_event(pid, PTRACE_EVENT_STOP)) return -1;
    if (!argument.empty()) {
      ::ptrace(PTRACE_CONT, pid, 0, 0);
      if (!wait_for_event(pid, PTRACE_EVENT_EXEC)) {
        if (is_alive(pid)) return -1;
        continue;
      }
      if (!has_argument(pid, argument)) {
        ::ptrace(PTRACE_DETACH, pid, 0, 0);
        continue;
      }
    }
    ::ptrace(PTRACE_SETOPTIONS, pid, 0, 0);  // its own children are not traced
    return pid;
  }
}

Tracee::Tracee(pid_t tid, bool is_ours) : tid_(tid) {
  if (is_ours) {
    is_stopped_ = true;
    return;
  }
  if (::ptrace(PTRACE_SEIZE, tid, 0, 0) != 0 || ::ptrace(PTRACE_INTERRUPT, tid, 0, 0) != 0) {
    ADD_FAILURE() << "cannot trace " << tid << ": " << std::strerror(errno);
    is_alive_ = false;
    return;
  }
  int status = 0;
  is_stopped_ = ::waitpid(tid_, &status, __WALL) == tid_ && WIFSTOPPED(status);
  is_alive_ = is_stopped_;
  // A signal that stopped the thread before the interrupt is delivered later.
  if (is_stopped_ && status >> 16 == 0 && WSTOPSIG(status) != SIGSTOP) pending_signal_ = WSTOPSIG(status);
}

Tracee::~Tracee() {
  if (!is_alive_) return;
  if (!is_stopped_) {
    int status = 0;
    ::ptrace(PTRACE_INTERRUPT, tid_, 0, 0);
    ::waitpid(tid_, &status, __WALL);
  }
  ::ptrace(PTRACE_POKEUSER, tid_, offsetof(struct user, u_debugreg[7]), 0);
  ::ptrace(PTRACE_DETACH, tid_, 0, 0);
}

void Tracee::resume(int request, int signal) {
  is_stopped_ = false;
  ::ptrace(static_cast<__ptrace_request>(request), tid_, 0, signal);
}

void Tracee::run_to(std::uint64_t address, std::uint64_t other) {
  if (!is_alive_) return;
  const auto poke = [&](std::size_t index, std::uint64_t value) {
    EXPECT_EQ(::ptrace(PTRACE_POKEUSER, tid_, offsetof(struct user, u_debugreg) + index * sizeof(std::uint64_t), value), 0)
        << "the processor's breakpoints cannot be set";
  };
  poke(7, 0);
  poke(0, address);
  poke(1, other);
  poke(7, (address ? 1u : 0u) | (other ? 4u : 0u));  // enabled, on execution
  resume(PTRACE_CONT, std::exchange(pending_signal_, 0));
}

bool Tracee::wait() {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (is_alive_ && std::chrono::steady_clock::now() < end) {
    int status = 0;
    if (::waitpid(tid_, &status, __WALL | WNOHANG) != tid_) {
      std::this_thread::sleep_for(10us);
      continue;
    }
    if (!WIFSTOPPED(status)) {
      is_alive_ = false;
      return false;
    }
    is_stopped_ = true;
    if (status >> 16 == 0 && WSTOPSIG(status) == SIGTRAP) return true;
    resume(PTRACE_CONT, status >> 16 == 0 ? WSTOPSIG(status) : 0);
  }
  return false;
}

bool Tracee::step() {
  int signal = 0;
  while (true) {
    resume(PTRACE_SINGLESTEP, signal);
    int status = 0;
    if (::waitpid(tid_, &status, __WALL) != tid_ || !WIFSTOPPED(status)) {
      is_alive_ = false;
      return false;
    }
    is_stopped_ = true;
    if (status >> 16 == 0 && WSTOPSIG(status) == SIGTRAP) return true;
    signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
  }
}

std::uint64_t Tracee::instruction() const {
  user_regs_struct registers{};
  ::ptrace(PTRACE_GETREGS, tid_, 0, &registers);
  return registers.rip;
}

std::uint64_t Tracee::stack_pointer() const {
  user_regs_struct registers{};
  ::ptrace(PTRACE_GETREGS, tid_, 0, &registers);
  return registers.rsp;
}

std::uint64_t Tracee::return_address() const {
  return static_cast<std::uint64_t>(::ptrace(PTRACE_PEEKDATA, tid_, stack_pointer(), 0));
}

std::vector<std::uint64_t> Tracee::walk_to_return(const Symbols& symbols) {
  std::vector<std::uint64_t> walked;
  std::set<std::uint64_t> seen;
  const std::uint64_t back = return_address(), frame = stack_pointer();
  std::uint64_t left_at = 0;  // the stack pointer when the thread last left the program
  bool is_inside = true;
  while (is_alive_) {
    const std::uint64_t here = instruction();
    if (here == back && stack_pointer() > frame) return walked;
    if (std::exchange(is_inside, symbols.is_own(here)) && !is_inside) left_at = stack_pointer();
    if (is_inside) {
      if (seen.insert(here).second) walked.push_back(here);
    } else if (const std::uint64_t caller = return_address(); stack_pointer() >= left_at && symbols.is_own(caller)) {
      // Below that, an address of the program is not a return address; the library has stored it there.
      run_to(caller);
      if (!wait()) break;
      continue;
    }
    if (!step()) break;
  }
  return {};
}

void Tracee::kill_process(pid_t pid) {
  if (is_alive_ || tid_ != pid) ::kill(pid, SIGKILL);  // a dead leader has been reaped, so its pid may belong to another process
  if (!is_alive_) return;
  int status = 0;
  while (::waitpid(tid_, &status, __WALL) == tid_ && WIFSTOPPED(status)) {
  }
  is_alive_ = false;
}

ExitHold::ExitHold(pid_t tid) : tid_(tid) {
  EXPECT_EQ(::ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACEEXIT), 0) << "cannot trace " << tid << ": " << std::strerror(errno);
}

ExitHold::~ExitHold() {
  ::ptrace(PTRACE_DETACH, tid_, 0, 0);
  int status = 0;
  ::waitpid(tid_, &status, __WALL | WNOHANG);
}

bool ExitHold::wait() const {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (std::chrono::steady_clock::now() < end) {
    int status = 0;
    if (::waitpid(tid_, &status, __WALL | WNOHANG) != tid_) {
      std::this_thread::sleep_for(1ms);
    } else if (WIFSTOPPED(status) && status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8))) {
      return true;
    } else if (!WIFSTOPPED(status)) {
      return false;
    } else if (status >> 16 == PTRACE_EVENT_STOP) {
      ::ptrace(PTRACE_LISTEN, tid_, 0, 0);  // a stopped process stays stopped
    } else {
      ::ptrace(PTRACE_CONT, tid_, 0, WSTOPSIG(status));
    }
  }
  return false;
}

}  // namespace shoal::test
