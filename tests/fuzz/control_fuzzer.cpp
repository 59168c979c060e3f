// libFuzzer: bytes as the JSON that processes exchange. Runs every parser: the client's, the zygote's and the daemon's.
#include <string_view>
#include <vector>

#include "client/src/description.hpp"
#include "shm/base/check.hpp"
#include "supervisor/repository/model_text.hpp"
#include "worker/zygote/load_message.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shoal;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)client::parse_message(text);
  (void)client::parse_names(text);
  (void)client::parse_change(text);
  (void)worker::parse_load(text);
  if (const auto loaded = supervisor::parse_loaded(text); loaded.ok()) SHOAL_CHECK(loaded->signature("echo") != 0);
  const auto description = client::parse_description(text);
  if (!description.ok()) return 0;
  std::vector<std::size_t> order;
  if (client::match_inputs(*description, description->info.inputs, order).ok()) {
    SHOAL_CHECK(order.size() == description->info.inputs.size());
  }
  return 0;
}
