// shoal-worker-faulty: the real worker plus operators that misbehave. For tests only; the shipped binary has none of them.
//
// A row of the input *triggers* an operator when its first element equals the attribute `scalar`.
//
//   _fault_abort         when triggered, aborts
//   _fault_kill          when triggered, sends SIGKILL to its process: a death without evidence
//   _fault_hang          when triggered, waits forever
//   _fault_overflow      when triggered, overflows its stack
//   _fault_exec          when triggered, executes /bin/true
//   _fault_open          when triggered, opens a file in /tmp for writing
//   _fault_socket        when triggered, creates an internet socket
//   _fault_bind          when triggered, binds a socket to a path where no daemon serves
//   _fault_sleep         when triggered, sleeps as many milliseconds as the row's second element says
//   _fault_exit          when triggered, exits with the row's second element as exit code
//   _fault_throw         when triggered, throws an exception on another thread, which nobody catches
//   _fault_later         when triggered, aborts on another thread 100 ms later, after its request was answered
//   _fault_flood         when triggered, sends control messages without end; their kind is the row's second element
//   _fault_page          when triggered, writes garbage over the worker's status page and continues
//   _fault_overrun       when triggered, writes one byte beyond a heap block: for builds with AddressSanitizer
//   _fault_leak          leaks `scalar` MiB in every run
//   _fault_slow          sleeps `scalar` milliseconds in every run; a chain of them makes a run of many short steps
//   _fault_spin          uses `scalar` milliseconds of processor time in every run
//   _fault_load_exec     executes /bin/true when its model is loaded
//   _fault_load_bind     binds a socket beside `attach` when its model is loaded: "intruder"
//   _fault_compile       waits forever when it is compiled for a batch of `scalar` rows
//   _fault_compile_spin  uses 1.5 s of processor time when it is compiled for a batch of `scalar` rows
//   _fault_write_weight  when triggered, writes to its second input, a weight
// The output of each operator is its first input. The operators of dynamic_operators.hpp are there, too.
//
// As the process that finds files, it never answers a question that names `stalled`.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "shm/base/clock.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/local_address.hpp"
#include "shoal/passive_openmp.hpp"
#include "tests/support/custom_operator.hpp"
#include "tests/support/dynamic_operators.hpp"
#include "worker/zygote/zygote.hpp"

namespace shoal::worker {
namespace {

double scalar_of(const Node& node) { return node.attributes.get<CustomAttributes>().scalar; }

// Returns the first row of the batch that triggers the operator; empty when none does.
std::span<const float> triggering_row(const Node& node, const TensorView& src) {
  const std::span<const float> values = src.values<float>();
  const std::size_t rows = src.shape.rank() > 1 ? static_cast<std::size_t>(src.shape[0]) : 1;
  const std::size_t length = rows > 0 ? values.size() / rows : 0;
  for (std::size_t row = 0; length > 0 && row < rows; ++row) {
    if (static_cast<double>(values[row * length]) == scalar_of(node)) return values.subspan(row * length, length);
  }
  return {};
}

bool is_triggered(const Node& node, const TensorView& src) { return !triggering_row(node, src).empty(); }

Status copy(const TensorView& src, TensorView& dst) {
  std::memcpy(dst.data, src.data, src.size_bytes());
  return {};
}

Status fault_abort(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0])) std::abort();
  return copy(src[0], dst[0]);
}

Status fault_kill(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0])) ::raise(SIGKILL);  // the sandbox forbids kill()
  return copy(src[0], dst[0]);
}

Status fault_hang(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  while (is_triggered(node, src[0])) ::pause();
  return copy(src[0], dst[0]);
}

[[gnu::noinline]] int dig(volatile char* above, int depth) {
  volatile char room[1 << 16];
  room[0] = above ? static_cast<char>(above[0] + 1) : 0;
  return depth == 0 ? 0 : dig(room, depth - 1) + room[0];
}

Status fault_overflow(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0]) && dig(nullptr, 1 << 20) == 1) return {};
  return copy(src[0], dst[0]);
}

// The second element of the row.
double amount_of(std::span<const float> row) { return row.size() > 1 ? static_cast<double>(row[1]) : 0; }

void sleep_ms(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

Status fault_sleep(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (const auto row = triggering_row(node, src[0]); !row.empty()) sleep_ms(amount_of(row));
  return copy(src[0], dst[0]);
}

Status fault_exit(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (const auto row = triggering_row(node, src[0]); !row.empty()) ::_exit(static_cast<int>(amount_of(row)));
  return copy(src[0], dst[0]);
}

Status fault_throw(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0])) std::thread([] { throw std::runtime_error("a fault on demand"); }).join();
  return copy(src[0], dst[0]);
}

Status fault_later(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0])) {
    std::thread([] {
      sleep_ms(100);
      std::abort();
    }).detach();
  }
  return copy(src[0], dst[0]);
}

Status fault_flood(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (const auto row = triggering_row(node, src[0]); !row.empty()) {
    int control = 3, type = 0;
    for (socklen_t size = sizeof type; control < 64; ++control) {
      if (::getsockopt(control, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET) break;
    }
    const auto kind = static_cast<wire::ControlKind>(amount_of(row));
    while (true) (void)wire::send_control(control, {.kind = kind});
  }
  return copy(src[0], dst[0]);
}

Status fault_page(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; is_triggered(node, src[0]) && std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (line.find("shoal:status") == std::string::npos || std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    for (auto* word = reinterpret_cast<volatile std::uint32_t*>(begin); word < reinterpret_cast<std::uint32_t*>(end); ++word)
      *word = 0x9e3779b9u * static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(word));
  }
  return copy(src[0], dst[0]);
}

Status fault_overrun(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0])) {
    char* const block = new char[64];
    static_cast<volatile char*>(block)[dst[0].size_bytes() < 64 ? 64 : 0] = 1;  // the compiler cannot know which
    delete[] block;
  }
  return copy(src[0], dst[0]);
}

Status fault_leak(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  const auto bytes = static_cast<std::size_t>(scalar_of(node) * (1 << 20));
  char* leaked = new char[bytes];
  for (std::size_t i = 0; i < bytes; i += 4096) static_cast<volatile char*>(leaked)[i] = 1;
  return copy(src[0], dst[0]);
}

Status fault_slow(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  sleep_ms(scalar_of(node));
  return copy(src[0], dst[0]);
}

void burn_ms(double ms) {
  const auto now_ns = [] {  // processor time of this thread, so that preemption does not shorten the work
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
  };
  for (const double end_ns = now_ns() + ms * 1e6; now_ns() < end_ns;) {
  }
}

Status fault_spin(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  burn_ms(scalar_of(node));
  return copy(src[0], dst[0]);
}

Status fault_exec(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0])) ::execl("/bin/true", "/bin/true", nullptr);
  return copy(src[0], dst[0]);
}

Status fault_open(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0]) && ::open("/tmp", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600) < 0)
    return internal_error("open failed");
  return copy(src[0], dst[0]);
}

Status fault_socket(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0]) && ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0) return internal_error("socket failed");
  return copy(src[0], dst[0]);
}

Status fault_bind(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0])) {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un nowhere{.sun_family = AF_UNIX, .sun_path = "/nowhere/attach"};
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&nowhere), sizeof nowhere) != 0)
      return internal_error("bind failed");
  }
  return copy(src[0], dst[0]);
}

Status fault_write_weight(const Node& node, std::span<const TensorView> src, std::span<TensorView> dst) {
  if (is_triggered(node, src[0])) *reinterpret_cast<volatile float*>(src[1].data) = 13;
  return copy(src[0], dst[0]);
}

bool is_compiled_for_trigger(const Node& node, const TypedValue& src) {
  return src.shape.rank() > 0 && src.shape[0].is_number() && static_cast<double>(src.shape[0].number()) == scalar_of(node);
}

Status infer_and_hang(const Node& node, SourceValues src, ResultValues dst) {
  while (is_compiled_for_trigger(node, src[0])) ::pause();
  return test::infer_like_first(node, src, dst);
}

Status infer_and_spin(const Node& node, SourceValues src, ResultValues dst) {
  if (is_compiled_for_trigger(node, src[0])) burn_ms(1500);
  return test::infer_like_first(node, src, dst);
}

Status infer_and_exec(const Node& node, SourceValues src, ResultValues dst) {
  ::execl("/bin/true", "/bin/true", nullptr);
  return test::infer_like_first(node, src, dst);
}

Status infer_and_bind(const Node& node, SourceValues src, ResultValues dst) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  (void)wire::bind_at(socket.get(), wire::default_directory() + "/intruder");
  return test::infer_like_first(node, src, dst);
}

Status do_nothing(const Node&, std::span<const TensorView> src, std::span<TensorView> dst) { return copy(src[0], dst[0]); }

void add_operator(const char* name, int inputs, OracleKernel kernel, InferFunction infer = test::infer_like_first) {
  test::register_custom_mxnet_operator({.name = name,
                                        .inputs = inputs,
                                        .attributes = &kSchema<CustomAttributes>,
                                        .infer = infer,
                                        .facts = layer_facts(rows_of_first_input, work_of_pairs, Accuracy::kLost),
                                        .oracle = kernel});
}

}  // namespace
}  // namespace shoal::worker

namespace {

// As if it waited for a file system that does not answer, but can be killed.
void stall_if_asked_to(int control) {
  std::string question(1 << 20, '\0');
  pollfd asked{.fd = control, .events = POLLIN, .revents = 0};
  (void)::poll(&asked, 1, -1);
  const ssize_t size = ::recv(control, question.data(), question.size(), MSG_PEEK);
  question.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  while (question.find("stalled") != question.npos) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace shoal::worker;
  if (argc == 3 && std::string_view(argv[1]) == "--find") stall_if_asked_to(std::atoi(argv[2]));
  shoal::ensure_passive_openmp(argv);
  add_operator("_fault_abort", 1, fault_abort);
  add_operator("_fault_kill", 1, fault_kill);
  add_operator("_fault_hang", 1, fault_hang);
  add_operator("_fault_overflow", 1, fault_overflow);
  add_operator("_fault_sleep", 1, fault_sleep);
  add_operator("_fault_exit", 1, fault_exit);
  add_operator("_fault_throw", 1, fault_throw);
  add_operator("_fault_later", 1, fault_later);
  add_operator("_fault_flood", 1, fault_flood);
  add_operator("_fault_page", 1, fault_page);
  add_operator("_fault_overrun", 1, fault_overrun);
  add_operator("_fault_leak", 1, fault_leak);
  add_operator("_fault_slow", 1, fault_slow);
  add_operator("_fault_spin", 1, fault_spin);
  add_operator("_fault_exec", 1, fault_exec);
  add_operator("_fault_open", 1, fault_open);
  add_operator("_fault_socket", 1, fault_socket);
  add_operator("_fault_bind", 1, fault_bind);
  add_operator("_fault_load_exec", 1, do_nothing, infer_and_exec);
  add_operator("_fault_load_bind", 1, do_nothing, infer_and_bind);
  add_operator("_fault_compile", 1, do_nothing, infer_and_hang);
  add_operator("_fault_compile_spin", 1, do_nothing, infer_and_spin);
  add_operator("_fault_write_weight", 2, fault_write_weight);
  shoal::test::register_dynamic_operators();
  return worker_main(argc, argv);
}
