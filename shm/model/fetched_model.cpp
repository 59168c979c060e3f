#include "shm/model/fetched_model.hpp"

#include <stdexcept>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/model/status_json.hpp"

namespace shoal {

using nlohmann::json;

std::string fetched_text(const FetchedModel& model) {
  return json_text({{"path", model.path}, {"bytes", model.bytes}, {"warnings", model.warnings}});
}

Result<FetchedModel> parse_fetched(std::string_view text) try {
  const json object = parse_json(text);
  if (object.contains("failure")) return internal::to_status(object["failure"]);
  const json& bytes = object.at("bytes");
  FetchedModel model{.path = object.at("path").get<std::string>(),
                     .bytes = bytes.is_number_unsigned() ? bytes.get<std::uint64_t>() : 0,
                     .warnings = object.at("warnings").get<std::vector<std::string>>()};
  if (!model.path.starts_with('/') || model.path.find('\0') != model.path.npos)
    throw std::runtime_error("a path is not absolute");
  return model;
} catch (const std::exception& error) {
  return internal_error("the answer of the process that fetches files cannot be read: {}", error.what());
}

}  // namespace shoal
