#include "tools/benchmarks/zmq_baseline.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <zmq.hpp>

namespace shoal::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

zmq::socket_t make_socket(zmq::context_t& context, zmq::socket_type type) {
  zmq::socket_t socket(context, type);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  return socket;
}

[[noreturn]] void run_worker(const std::string& path, std::size_t reply_bytes) {
  zmq::context_t context;
  auto socket = make_socket(context, zmq::socket_type::dealer);
  socket.bind(path);
  const std::vector<char> reply(reply_bytes, 'r');
  for (zmq::message_t request;;) {
    (void)socket.recv(request);
    socket.send(zmq::buffer(reply), zmq::send_flags::none);
  }
}

// Forwards requests while the worker has credits, queues the others, and returns replies.
[[noreturn]] void run_broker(const std::string& client_path, const std::string& worker_path, int credits) {
  zmq::context_t context;
  auto clients = make_socket(context, zmq::socket_type::router);
  auto workers = make_socket(context, zmq::socket_type::router);
  clients.set(zmq::sockopt::connect_routing_id, "c");
  clients.connect(client_path);
  workers.set(zmq::sockopt::connect_routing_id, "w");
  workers.connect(worker_path);
  std::deque<zmq::message_t> waiting;
  zmq::pollitem_t items[] = {{clients.handle(), 0, ZMQ_POLLIN, 0}, {workers.handle(), 0, ZMQ_POLLIN, 0}};
  const auto send = [](zmq::socket_t& to, const char* id, zmq::message_t& body) {
    to.send(zmq::buffer(id, 1), zmq::send_flags::sndmore);
    to.send(body, zmq::send_flags::none);
  };
  for (zmq::message_t id, body;;) {
    zmq::poll(items, 2, std::chrono::milliseconds(-1));
    while (workers.recv(id, zmq::recv_flags::dontwait)) {
      (void)workers.recv(body);
      ++credits;
      send(clients, "c", body);
    }
    while (clients.recv(id, zmq::recv_flags::dontwait)) {
      (void)clients.recv(body);
      waiting.push_back(std::move(body));
    }
    for (; credits > 0 && !waiting.empty(); --credits, waiting.pop_front()) send(workers, "w", waiting.front());
  }
}

template <typename Body>
pid_t spawn(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
  }
  return pid;
}

}  // namespace

BaselineRun run_baseline(const std::string& directory, const BaselineOptions& options) {
  const std::string client_path = "ipc://" + directory + "/baseline-client",
                    worker_path = "ipc://" + directory + "/baseline-worker";
  const pid_t worker = spawn([&] { run_worker(worker_path, options.reply_bytes); });
  ::usleep(100'000);  // the worker and the client bind before the broker connects
  BaselineRun run;
  {
    zmq::context_t context;
    auto socket = make_socket(context, zmq::socket_type::dealer);
    socket.bind(client_path);
    const pid_t broker = spawn([&] { run_broker(client_path, worker_path, options.credits); });
    const std::vector<char> request(options.request_bytes, 'q');
    std::deque<SteadyClock::time_point> sent;
    SteadyClock::time_point started;
    zmq::message_t reply;
    const int warm_up = options.requests / 10 + options.window;
    for (int submitted = 0, answered = 0; answered < options.requests + warm_up;) {
      for (; submitted - answered < options.window && submitted < options.requests + warm_up; ++submitted) {
        sent.push_back(SteadyClock::now());
        socket.send(zmq::buffer(request), zmq::send_flags::none);
      }
      (void)socket.recv(reply);
      if (answered == warm_up) started = SteadyClock::now();
      if (answered++ >= warm_up)
        run.round_trips_us.push_back(std::chrono::duration<double, std::micro>(SteadyClock::now() - sent.front()).count());
      sent.pop_front();
    }
    run.seconds = std::chrono::duration<double>(SteadyClock::now() - started).count();
    ::kill(broker, SIGKILL);
    ::waitpid(broker, nullptr, 0);
  }
  ::kill(worker, SIGKILL);
  ::waitpid(worker, nullptr, 0);
  return run;
}

}  // namespace shoal::bench
