#include "worker/serve/crash_handler.hpp"

#include <cxxabi.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <span>

#include "shm/base/check.hpp"
#include "shm/base/fault_signals.hpp"
#include "worker/serve/sandbox.hpp"

namespace shoal::worker {
namespace {

// All that a handler may touch. Thread-local ones need no atomics, because a handler reads only what its own thread wrote.
wire::LaneLine* first_line = nullptr;
thread_local constinit wire::LaneLine* lane_line = nullptr;
thread_local constinit const Progress* lane_progress = nullptr;
thread_local constinit const std::atomic<std::uint64_t>* lane_request = nullptr;
thread_local constinit wire::CrashCause own_cause = wire::CrashCause::kSignal;  // why this thread calls abort()
thread_local constinit char own_words[256] = "";
std::atomic_flag is_crashing = ATOMIC_FLAG_INIT;

/// An executable part of a program or library. The list is made beforehand, because asking the loader takes locks.
struct Code {
  std::uintptr_t begin, end, base;
  char module[48];
};
std::array<Code, 128> codes;
std::size_t code_count = 0;

int note_module(dl_phdr_info* info, std::size_t, void* program) {
  const char* path =
      info->dlpi_name != nullptr && info->dlpi_name[0] != '\0' ? info->dlpi_name : static_cast<const char*>(program);
  const char* slash = std::strrchr(path, '/');
  for (int i = 0; i < info->dlpi_phnum && code_count < codes.size(); ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    Code& code = codes[code_count++];
    code = {.begin = info->dlpi_addr + part.p_vaddr,
            .end = info->dlpi_addr + part.p_vaddr + part.p_memsz,
            .base = info->dlpi_addr,
            .module = {}};
    std::snprintf(code.module, sizeof code.module, "%s", slash != nullptr ? slash + 1 : path);
  }
  return 0;
}

/// Writes text into a fixed buffer. It is NUL-terminated after every step, so a crash in the handler loses only what follows.
class Writer {
 public:
  explicit Writer(std::span<char> room) : at_(room.data()), end_(room.data() + room.size() - 1) { *at_ = '\0'; }
  void text(const char* text) {
    for (; *text != '\0' && at_ < end_; ++text) put(*text);
  }
  void hex(std::uintptr_t number) {
    text("0x");
    int digits = 1;
    while (digits < 16 && number >> (4 * digits) != 0) ++digits;
    while (digits-- > 0) put("0123456789abcdef"[number >> (4 * digits) & 15]);
  }

 private:
  void put(char c) {
    if (at_ >= end_) return;
    at_[1] = '\0';
    *at_++ = c;
  }
  char *at_, *const end_;
};

void write_frame(Writer& out, std::uintptr_t address) {
  const auto code = std::find_if(codes.begin(), codes.begin() + code_count,
                                 [&](const Code& each) { return each.begin <= address && address < each.end; });
  if (code != codes.begin() + code_count) {
    out.text(code->module);
    out.text("+");
    address -= code->base;
  }
  out.hex(address);
  out.text("\n");
}

std::uintptr_t fault_address([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<const ucontext_t*>(context)->uc_mcontext.pc;
#else
  return 0;
#endif
}

// backtrace() takes no lock and no memory once its library is loaded (glibc 2.35, libgcc 12), which install_crash_handler() sees
// to.
void write_stack(Writer& out, const void* context) {
  void* frames[64];
  const int depth = ::backtrace(frames, static_cast<int>(std::size(frames)));
  const std::uintptr_t fault = fault_address(context);
  int first = 0;
  while (first < depth && reinterpret_cast<std::uintptr_t>(frames[first]) != fault) ++first;
  write_frame(out, fault);
  // A return address belongs to the call before it.
  for (int i = first + 1; i < depth; ++i) write_frame(out, reinterpret_cast<std::uintptr_t>(frames[i]) - 1);
}

// When the limit is reached, an allocation fails, and most libraries crash then. So such a crash counts as out of memory.
bool is_out_of_memory() {
  constexpr std::size_t kEnough = std::size_t{1} << 20;
  void* memory = ::mmap(nullptr, kEnough, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return true;
  ::munmap(memory, kEnough);
  return false;
}

void record(const siginfo_t& info, const void* context, wire::LaneLine& line, const Progress* progress) {
  constexpr auto relaxed = std::memory_order_relaxed;
  wire::CrashRecord& crash = line.crash;
  const bool was_sent = info.si_code <= 0;  // by a process: kill(), sigqueue(), tgkill()
  // This process sends signals to itself by tgkill() only; with others the sender chooses what si_pid says.
  const bool by_other = was_sent && !(info.si_code == SI_TKILL && info.si_pid == ::getpid());
  const std::int32_t sender = info.si_pid > 0 && info.si_pid != ::getpid() ? info.si_pid : wire::kUnknownSender;
  const auto cause =
      own_cause == wire::CrashCause::kSignal && !by_other && is_out_of_memory() ? wire::CrashCause::kOutOfMemory : own_cause;
  crash.request_id.store(progress ? lane_request->load(relaxed) : 0, relaxed);
  crash.address.store(was_sent ? 0 : reinterpret_cast<std::uint64_t>(info.si_addr), relaxed);
  crash.signal.store(static_cast<std::uint32_t>(info.si_signo), relaxed);
  crash.code.store(info.si_code, relaxed);
  crash.sender_pid.store(by_other ? sender : 0, relaxed);
  crash.on_lane.store(progress ? 1 : 0, relaxed);
  crash.cause.store(static_cast<std::uint32_t>(cause), relaxed);
  // Pairs with the supervisor's acquire after the pidfd reported. What follows reads memory that the crash may have spoiled.
  crash.valid.store(1, std::memory_order_release);
  const char* name = progress ? progress->step_name.load(relaxed) : nullptr;
  Writer operation(crash.operator_name);
  if (name) operation.text(name);
  if (const char* call = info.si_signo == SIGSYS ? forbidden_call_name(info.si_syscall) : nullptr) {
    operation.text(name ? ", which the sandbox forbids to call " : "what the sandbox forbids: ");
    operation.text(call);
  }
  Writer stack(crash.stack);
  if (own_words[0] != '\0') {
    stack.text(own_words);
    stack.text("\n");
  }
  write_stack(stack, context);
}

void handle(int signal, siginfo_t* info, void* context) {
  // The first thread that crashes writes the record; others wait here for the end of the process.
  while (is_crashing.test_and_set()) ::pause();
  record(*info, context, lane_line ? *lane_line : *first_line, lane_progress);
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // delivered when this returns; a fault would also just happen again
}

// Writes down the exception that nobody caught; the crash handler finds it when abort() raises its signal.
[[noreturn]] void on_terminate() {
  const auto say = [](wire::CrashCause cause, const char* what) {
    own_cause = cause;
    const std::type_info* type = abi::__cxa_current_exception_type();
    int status = 0;
    const char* const name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
    std::snprintf(own_words, sizeof own_words, "uncaught %s%s%s", name != nullptr ? name : type->name(),
                  *what != '\0' ? ": " : "", what);
  };
  if (std::current_exception() == nullptr) {
    std::snprintf(own_words, sizeof own_words, "std::terminate() without an exception");
  } else {
    try {
      throw;
    } catch (const std::bad_alloc& error) {
      say(wire::CrashCause::kOutOfMemory, error.what());
    } catch (const std::exception& error) {
      say(wire::CrashCause::kException, error.what());
    } catch (...) {
      say(wire::CrashCause::kException, "");
    }
  }
  std::abort();
}

}  // namespace

void install_crash_handler(wire::LaneLine* line) {
  first_line = line;
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // makes it load its library now
  char program[PATH_MAX] = "";
  (void)!::readlink("/proc/self/exe", program, sizeof program - 1);
  code_count = 0;
  ::dl_iterate_phdr(note_module, program);
  std::set_terminate(on_terminate);
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigfillset(&action.sa_mask);  // a fault within the handler ends the process at once
  for (const int signal : kFaultSignals) SHOAL_CHECK(::sigaction(signal, &action, nullptr) == 0);
}

void abort_out_of_memory(const char* where) {
  own_cause = wire::CrashCause::kOutOfMemory;
  std::snprintf(own_words, sizeof own_words, "out of memory, %s", where);
  std::abort();
}

CrashEvidence::CrashEvidence(wire::LaneLine& line, const Progress& progress, const std::atomic<std::uint64_t>& request_id) {
  // What the kernel needs for this processor's registers (AMX tiles need 8 KB), and room for the handler and the unwinder.
  stack_bytes_ = static_cast<std::size_t>(std::max<long>(::sysconf(_SC_SIGSTKSZ), 0)) + 64 * 1024;
  stack_ = ::mmap(nullptr, stack_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack_ == MAP_FAILED) throw std::bad_alloc();
  stack_t stack{};
  stack.ss_sp = stack_;
  stack.ss_size = stack_bytes_;
  if (::sigaltstack(&stack, nullptr) != 0) {
    ::munmap(stack_, stack_bytes_);
    throw std::bad_alloc();
  }
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
