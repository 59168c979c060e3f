// A program with an epoll loop of its own: lines of standard input are requests, and a CompletionQueue's descriptor says when one
// is complete. Answers come in the order in which they are ready.
//
//   seq 1 1000 | example_epoll_loop echo
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "shoal/completion_queue.hpp"
#include "shoal/pool.hpp"

int main(int argc, char** argv) try {
  shoal::Pool pool = shoal::Pool::connect().value();
  const shoal::Model model = pool.client().model(argc > 1 ? argv[1] : "echo").value();
  shoal::CompletionQueue queue(pool);
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {}};
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, queue.fd().value(), &event);

  std::uint64_t submitted = 0;
  for (std::string line; std::getline(std::cin, line); ++submitted) {
    shoal::Tensor input = pool.loan(shoal::DType::kFloat32, {1}).value();
    input.values<float>()[0] = std::strtof(line.c_str(), nullptr);
    shoal::Request request(model);
    for (const shoal::Status& status : {request.set_input(0, input), queue.submit(request, submitted)})
      if (!status.ok()) throw shoal::Error(status);
  }
  std::array<shoal::Completion, 64> completions;
  for (std::uint64_t done = 0; done < submitted;) {
    ::epoll_wait(epoll, &event, 1, -1);  // a server waits for its connections here, too
    const std::size_t count = queue.poll(completions);
    for (std::size_t i = 0; i < count; ++i) {
      const shoal::Result<shoal::Tensors>& outputs = completions[i].request.outputs();
      if (!outputs.ok()) throw shoal::Error(outputs.status());
      std::printf("%llu %g\n", static_cast<unsigned long long>(completions[i].tag), outputs.value()[0].tensor.values<float>()[0]);
    }
    done += count;
  }
  ::close(epoll);
  return 0;
} catch (const shoal::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
