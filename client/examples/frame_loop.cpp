// A camera's loop: 60 frames a second are submitted, and finished results are looked for between two frames. Nothing here waits
// for a result, and at most kInFlight frames are under way: while they are, a frame is dropped.
//
//   example_frame_loop MODEL [FRAMES]      MODEL has one input of fixed size, float32
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "shoal/completion_queue.hpp"
#include "shoal/pool.hpp"

using Clock = std::chrono::steady_clock;

constexpr std::size_t kInFlight = 8;
constexpr std::chrono::nanoseconds kFrame(1'000'000'000 / 60);

int main(int argc, char** argv) try {
  if (argc < 2) return std::fprintf(stderr, "usage: %s MODEL [FRAMES]\n", argv[0]), 2;
  const int frames = argc > 2 ? std::atoi(argv[2]) : 300;
  shoal::Pool pool = shoal::Pool::connect().value();
  const shoal::Client client = pool.client();
  const shoal::Model model = client.model(argv[1]).value();
  shoal::Shape shape = model.info()->inputs.at(0).shape;
  for (int axis = 0; axis < shape.rank(); ++axis) shape[axis] = std::max<std::int64_t>(shape[axis], 1);

  std::vector<shoal::Request> idle;  // each has an input in shared memory, which the camera writes
  for (std::size_t i = 0; i < kInFlight; ++i) {
    idle.emplace_back(model);
    if (const shoal::Status set = idle.back().set_input(0, pool.loan(shoal::DType::kFloat32, shape).value()); !set.ok())
      throw shoal::Error(set);
    idle.back().set_timeout(std::chrono::seconds(1));
  }
  shoal::CompletionQueue queue(client);
  int submitted = 0, finished = 0, failed = 0, dropped = 0;
  const auto take = [&](Clock::time_point until) {  // what is finished, until the next frame comes
    std::array<shoal::Completion, kInFlight> done;
    while (const std::size_t count = queue.under_way() > 0 ? queue.next(done, until) : 0) {
      for (std::size_t i = 0; i < count; ++i) {
        (done[i].request.outputs().ok() ? finished : failed)++;
        idle.push_back(std::move(done[i].request));
      }
    }
    std::this_thread::sleep_until(until);
  };

  const Clock::time_point start = Clock::now();
  for (int frame = 0; frame < frames; ++frame) {
    if (idle.empty()) {
      ++dropped;
    } else {
      if (const shoal::Status sent = queue.submit(idle.back(), static_cast<std::uint64_t>(frame)); !sent.ok())
        throw shoal::Error(sent);
      idle.pop_back();
      ++submitted;
    }
    take(start + kFrame * (frame + 1));
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  while (queue.under_way() > 0) take(Clock::now() + kFrame);
  std::printf("%d frames in %.2f s: %.1f a second, %d finished, %d failed, %d dropped\n", frames, seconds, submitted / seconds,
              finished, failed, dropped);
  return failed > 0;
} catch (const shoal::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
