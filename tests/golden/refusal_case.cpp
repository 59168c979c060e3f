#include "tests/golden/refusal_case.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/vectors.hpp"

namespace shoal::testing {

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name << ": " << refusal.why; }

std::filesystem::path refusals_folder() { return test_data() / "vectors" / "refusals"; }

std::vector<Refusal> read_refusals(const char* index) {
  std::vector<Refusal> all;
  std::ifstream file(refusals_folder() / index);
  if (!file) return all;
  for (const auto& entry : nlohmann::json::parse(file)) {
    if (std::ranges::find(kRunNow, entry.at("name").get<std::string>()) != std::end(kRunNow)) continue;
    Refusal refusal{entry.at("name"), entry.at("why"), entry.value("must_name", std::vector<std::string>()), {}};
    const auto shapes = entry.value("shapes", nlohmann::json::object());
    for (const auto& [name, dims] : shapes.items()) {
      refusal.inputs.push_back({name, DType::kFloat32, Shape(dims.get<std::vector<std::int64_t>>())});
    }
    all.push_back(std::move(refusal));
  }
  return all;
}

void expect_refused(const Refusal& refusal, const Status& status) {
  const std::string& message = status.message();
  // Operators of later tiers are refused by name; their attributes are not read.
  const bool unknown_operator =
      status.code() == StatusCode::kUnimplemented && message.find("operators that Shoal does not have") != std::string::npos;
  for (std::size_t i = 0; i < refusal.must_name.size(); ++i) {
    if (unknown_operator && i >= 2) break;  // the first two name operator and node
    EXPECT_NE(message.find(refusal.must_name[i]), std::string::npos)
        << "does not name " << refusal.must_name[i] << ": " << message;
  }
  EXPECT_NE(status.code(), StatusCode::kInternal) << message;
}

}  // namespace shoal::testing
