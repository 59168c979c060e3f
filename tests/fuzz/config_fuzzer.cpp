// libFuzzer: bytes as configuration: model.toml, the daemon's configuration, or --model. The first byte chooses.
#include <string>

#include "shm/base/check.hpp"
#include "shm/model/model_config.hpp"

namespace {

using namespace shoal;

void read_model_toml(const std::string& text) {
  const auto config = parse_model_config(text, "model.toml");
  if (!config.ok()) return;
  const TensorSpec asked[] = {{"data", DType::kFloat32, Shape()}};
  const auto plan = plan_inputs(*config, asked, "model 'fuzz'");
  if (!plan.ok()) return;
  SHOAL_CHECK(!plan->input_sets.empty());
  for (const auto& set : plan->input_sets) {
    for (const TensorSpec& input : set) SHOAL_CHECK(input.shape.element_count() >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      read_model_toml(text);
      return 0;
    case 1:
      (void)parse_daemon_config(text, "shoald.toml", "/etc/shoal");
      return 0;
    default:
      (void)parse_model_argument(text);
      return 0;
  }
}
