#include "worker/serve/crash_handler.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "shm/base/check.hpp"
#include "worker/serve/sandbox.hpp"

namespace shoal::worker {
namespace {

// All a handler may touch. The thread's own are plain pointers: a handler reads what its own thread wrote.
wire::LaneLine* first_line = nullptr;
thread_local constinit wire::LaneLine* lane_line = nullptr;
thread_local constinit const Progress* lane_progress = nullptr;
thread_local constinit const std::atomic<std::uint64_t>* lane_request = nullptr;
std::atomic_flag is_crashing = ATOMIC_FLAG_INIT;

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};

void record(const siginfo_t& info, wire::LaneLine& line, const Progress* progress) {
  constexpr auto relaxed = std::memory_order_relaxed;
  wire::CrashRecord& crash = line.crash;
  const bool was_sent = info.si_code <= 0;  // by a process: kill(), sigqueue(), tgkill()
  crash.request_id.store(progress ? lane_request->load(relaxed) : 0, relaxed);
  crash.address.store(was_sent ? 0 : reinterpret_cast<std::uint64_t>(info.si_addr), relaxed);
  crash.signal.store(static_cast<std::uint32_t>(info.si_signo), relaxed);
  crash.code.store(info.si_code, relaxed);
  crash.sender_pid.store(was_sent && info.si_pid != ::getpid() ? info.si_pid : 0, relaxed);
  crash.on_lane.store(progress ? 1 : 0, relaxed);
  const char* name = progress ? progress->step_name.load(relaxed) : nullptr;
  std::size_t length = 0;
  for (; name && name[length] != '\0' && length + 1 < sizeof crash.operator_name; ++length)
    crash.operator_name[length] = name[length];
  const auto append = [&](const char* text) {
    for (; *text && length + 1 < sizeof crash.operator_name; ++text) crash.operator_name[length++] = *text;
  };
  const char* call = info.si_signo == SIGSYS ? forbidden_call_name(info.si_syscall) : nullptr;
  if (call) append(length > 0 ? ", which the sandbox forbids to call " : "what the sandbox forbids: "), append(call);
  crash.operator_name[length] = '\0';
  crash.valid.store(1, std::memory_order_release);  // pairs with the supervisor's acquire after the pidfd reported
}

void handle(int signal, siginfo_t* info, void*) {
  // The first to crash writes; another thread waits here for the end of the process.
  while (is_crashing.test_and_set()) ::pause();
  record(*info, lane_line ? *lane_line : *first_line, lane_progress);
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // delivered when this returns; a fault would also just happen again
}

}  // namespace

void install_crash_handler(wire::LaneLine* line) {
  first_line = line;
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : kSignals) SHOAL_CHECK(::sigaction(signal, &action, nullptr) == 0);
}

CrashEvidence::CrashEvidence(wire::LaneLine& line, const Progress& progress, const std::atomic<std::uint64_t>& request_id) {
  // What the kernel needs for this processor's registers (AMX tiles need 8 KB), and room for the handler.
  stack_bytes_ = static_cast<std::size_t>(std::max<long>(::sysconf(_SC_SIGSTKSZ), 0)) + 32 * 1024;
  stack_ = ::mmap(nullptr, stack_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  SHOAL_CHECK(stack_ != MAP_FAILED);
  stack_t stack{};
  stack.ss_sp = stack_;
  stack.ss_size = stack_bytes_;
  SHOAL_CHECK(::sigaltstack(&stack, nullptr) == 0);
  lane_line = &line;
  lane_request = &request_id;
  lane_progress = &progress;
}

CrashEvidence::~CrashEvidence() {
  lane_line = nullptr;
  lane_progress = nullptr;
  lane_request = nullptr;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
  ::munmap(stack_, stack_bytes_);
}

}  // namespace shoal::worker
