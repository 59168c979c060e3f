// libFuzzer: bytes as the frames of a message. Runs the decoders of both directions, and a lane that answers valid requests.
#include <algorithm>
#include <thread>
#include <vector>

#include "shm/base/check.hpp"
#include "shm/segment/segment.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/parcel.hpp"
#include "tests/fuzz/packets.hpp"
#include "tests/support/lane_parts.hpp"
#include "worker/engine/identity_model.hpp"

namespace shoal {
namespace {

using Frame = std::span<const std::byte>;

// A decoded message encodes to the same bytes.
template <typename Decoded>
void check_round_trip(const Result<Decoded>& decoded, void (*encode)(const Decoded&, std::vector<std::byte>&), Frame frame) {
  if (!decoded.ok()) return;
  std::vector<std::byte> again;
  encode(*decoded, again);
  SHOAL_CHECK(std::ranges::equal(again, frame));
}

// A lane on the identity model, and the arenas of client 1.
class Lane {
 public:
  Lane() {
    std::vector<UniqueFd> arenas;
    for (const char* label : {"input", "output"}) arenas.push_back(create_memfd(label, 4096).value());
    SHOAL_CHECK(parts_.arenas.attach(1, arenas).ok());
  }

  void answer(std::span<const Frame> message) {
    const auto header = wire::decode_request(message[0]);
    if (header.ok() && header->header.client_id != 1)
      return;  // the lane would wait for arenas of another client, which never arrive
    auto reply = runner_.answer(message);
    while (const auto program = runner_.waits_for()) {
      while (!program->is_ready()) std::this_thread::yield();
      reply = runner_.answer(message, program);
    }
    if (!reply.empty()) SHOAL_CHECK(wire::decode_reply(reply[0]).ok());
  }

 private:
  worker::IdentityModel model_;
  test::LaneParts parts_{"echo", model_, {{"data", DType::kFloat32, Shape{-1, -1}}}};
  worker::RequestRunner runner_{parts_.environment, 0, parts_.line, parts_.bell};
};

}  // namespace
}  // namespace shoal

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shoal;
  static Lane lane;
  const auto message = fuzz::split_packets(std::as_bytes(std::span(data, size)));
  if (message.empty()) return 0;
  std::size_t bundled = 0;
  for (auto bundle = wire::BundleReader::of(message[0]); bundle && !bundle->is_done();) bundled += bundle->next().size();
  SHOAL_CHECK(bundled <= message[0].size() + sizeof(wire::BundleHeader));
  check_round_trip(wire::decode_request(message[0]), wire::encode_request, message[0]);
  check_round_trip(wire::decode_reply(message[0]), wire::encode_reply, message[0]);
  (void)wire::decode_control(message[0]);
  lane.answer(message);
  return 0;
}
