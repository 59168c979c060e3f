// A client of the soak: asks for some seconds, a few requests at a time, and writes its history into a file.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <deque>

#include "shoal/pool.hpp"
#include "tests/crash/soak_requests.hpp"

namespace shoal::test {
namespace {

constexpr std::size_t kWindow = 4;

/// Unbuffered: a killed client's last line is what it last did.
class History {
 public:
  explicit History(const char* file) : fd_(::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  void add(const std::string& line) const {
    if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
  }

 private:
  int fd_;
};

struct UnderWay {
  int number;
  Prediction prediction;
};

void write_answer(const History& history, const UnderWay& request) {
  const Result<Tensors>& outputs = request.prediction.get();
  if (!outputs.ok()) std::fprintf(stderr, "soak client %d: %s\n", ::getpid(), outputs.status().to_string().c_str());
  history.add(answer_line(request.number, static_cast<int>(outputs.status().code()),
                          outputs.ok() ? hash_of(outputs->front().tensor) : 0));
}

int run(const char* directory, const char* file, unsigned seed, double seconds) {
  const History history(file);
  std::mt19937 random(seed);
  Pool pool = Pool::connect({.directory = directory, .input_arena_bytes = 4 << 20, .output_arena_bytes = 4 << 20}).value();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::deque<UnderWay> under_way;
  for (int number = 0; std::chrono::steady_clock::now() < end; ++number) {
    if (under_way.size() == kWindow) {
      write_answer(history, under_way.front());
      under_way.pop_front();
    }
    const SoakRequest request = random_request(random);
    history.add(ask_line(number, request));
    under_way.push_back({number, pool.submit(name_of(request.model), {{"data", input_of(request)}})});
  }
  for (const UnderWay& request : under_way) write_answer(history, request);
  history.add("end\n");
  return 0;
}

}  // namespace
}  // namespace shoal::test

// soak-client DIRECTORY FILE SEED SECONDS
int main(int argc, char** argv) {
  return argc == 5 ? shoal::test::run(argv[1], argv[2], static_cast<unsigned>(std::atoi(argv[3])), std::atof(argv[4])) : 2;
}
