// The parts that a lane of a worker uses, without its socket and its thread, and messages that it receives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/serve/request_runner.hpp"

namespace shoal::test {

inline constexpr std::uint64_t kClient = 5;  // the number of the client that sends the requests

///   Threads  thread-bound
struct LaneParts {
  LaneParts(std::string name, worker::Model& model, std::vector<TensorSpec> inputs)
      : served{.name = std::move(name), .model = model, .inputs = std::move(inputs)} {}

  worker::ServedModelView served;
  worker::ArenaRegistry arenas;
  worker::CancelledRequests cancelled;
  worker::Quarantine quarantine;
  worker::MemoryLimit memory;
  wire::FlightRing ring{};
  worker::FlightRecorder flight{ring};
  wire::LaneLine line{};
  worker::ReadyBell bell;  // without a descriptor: a test that waits for it gives it one
  wire::ProgramLine program_line{};
  worker::ProgramCompiler compiler{served.model, cancelled, memory, flight, program_line};
  worker::LaneEnvironment environment{served, arenas, cancelled, quarantine, memory, compiler, flight};
};

/// A request whose one tensor travels as a frame.
inline wire::Request framed_request(std::uint64_t id, const Tensor& input) {
  wire::Request request;
  request.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kRequest), .request_id = id, .attempt = 1};
  request.inputs = {wire::to_wire(input.view())};
  request.inputs[0].location = static_cast<std::uint8_t>(wire::Location::kFrame);
  return request;
}

/// Messages of two frames: a request and its tensor. Owns their bytes.
class RequestMessages {
 public:
  void add(const wire::Request& request, const Tensor& input) {
    Message& message = owned_.emplace_back(Message{{}, input, {}});
    wire::encode_request(request, message.head);
    message.frames = {message.head, message.input.view().bytes()};
    messages_.push_back(message.frames);
  }
  const worker::Frames& operator[](std::size_t index) const { return messages_[index]; }
  std::span<const worker::Frames> all() const { return messages_; }

 private:
  struct Message {
    std::vector<std::byte> head;
    Tensor input;
    std::array<std::span<const std::byte>, 2> frames;
  };
  std::deque<Message> owned_;  // whose elements stay where they are
  std::vector<worker::Frames> messages_;
};

}  // namespace shoal::test
