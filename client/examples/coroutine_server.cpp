// A server of coroutines in one thread: each line "NUMBER" on a Unix socket is one request, answered with "NUMBER". A coroutine
// serves each connection. It waits for its socket and for the model alike, and goes on in the event loop, which is the Executor.
//
//   example_coroutine_server echo /tmp/numbers.sock &      echo 42 | socat - UNIX:/tmp/numbers.sock
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "shoal/client.hpp"
#include "shoal/pool.hpp"

/// An event loop of one thread. Other threads may post tasks to it.
class Loop {
 public:
  Loop() { watch(wake_, nullptr); }

  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    ::eventfd_write(wake_, 1);
  }
  /// `co_await loop.readable(fd)`: goes on when there is something to read.
  auto readable(int fd) {
    struct Readable {
      Loop& loop;
      int fd;
      bool await_ready() { return false; }
      void await_suspend(std::coroutine_handle<> coroutine) { loop.watch(fd, coroutine.address()); }
      void await_resume() { ::epoll_ctl(loop.epoll_, EPOLL_CTL_DEL, fd, nullptr); }
    };
    return Readable{*this, fd};
  }
  [[noreturn]] void run() {
    while (true) {
      epoll_event event;
      if (::epoll_wait(epoll_, &event, 1, -1) != 1) continue;
      if (event.data.ptr) {
        std::coroutine_handle<>::from_address(event.data.ptr).resume();
        continue;
      }
      eventfd_t ignored;
      ::eventfd_read(wake_, &ignored);
      std::vector<std::function<void()>> tasks;
      {
        const std::lock_guard lock(mutex_);
        tasks.swap(tasks_);
      }
      for (const auto& task : tasks) task();
    }
  }

 private:
  void watch(int fd, void* coroutine) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = coroutine}};
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
  const int epoll_ = ::epoll_create1(EPOLL_CLOEXEC), wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
};

/// A coroutine that runs by itself until it ends.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Detached serve(Loop& loop, shoal::Model model, int connection) {
  const shoal::Executor in_loop = [&loop](std::function<void()> task) { loop.post(std::move(task)); };
  std::string received;
  char bytes[4096];
  while (true) {
    co_await loop.readable(connection);
    const ssize_t count = ::read(connection, bytes, sizeof bytes);
    if (count <= 0) break;
    received.append(bytes, static_cast<std::size_t>(count));
    for (std::size_t end = 0; (end = received.find('\n')) != received.npos; received.erase(0, end + 1)) {
      shoal::Tensor input = shoal::Tensor::create(shoal::DType::kFloat32, {1}).value();
      input.values<float>()[0] = std::strtof(received.c_str(), nullptr);
      shoal::Tensors inputs{{model.info()->inputs[0].name, input}};
      const shoal::Result<shoal::Tensors> outputs = co_await model.infer(std::move(inputs), {}, {}, in_loop);
      const std::string answer =
          (outputs.ok() ? std::to_string(outputs.value()[0].tensor.values<float>()[0]) : outputs.status().to_string()) + "\n";
      ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }
  ::close(connection);
}

Detached accept_all(Loop& loop, shoal::Model model, int listener) {
  while (true) {
    co_await loop.readable(listener);
    const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) serve(loop, model, connection);
  }
}

int main(int argc, char** argv) try {
  if (argc < 3) return std::fprintf(stderr, "usage: %s MODEL SOCKET\n", argv[0]), 2;
  shoal::Pool pool = shoal::Pool::connect().value();
  const shoal::Model model = pool.client().model(argv[1]).value();
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[2]);
  ::unlink(argv[2]);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listener, 64) != 0)
    return std::perror(argv[2]), 1;
  std::printf("listening on %s\n", argv[2]);
  std::fflush(stdout);
  Loop loop;
  accept_all(loop, model, listener);
  loop.run();
} catch (const shoal::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
