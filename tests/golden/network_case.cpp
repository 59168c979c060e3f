#include "tests/golden/network_case.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/vectors.hpp"
#include "tools/make_model/checkpoint_writer.hpp"
#include "tools/make_model/rule_fill.hpp"

namespace shoal::testing {
namespace {

/// `count` elements: 0, step, 2 step, ...
Tensor every(std::int64_t step, std::int64_t count, Tensor whole) {
  Tensor part = Tensor::create(DType::kFloat32, {count}).value();
  for (std::int64_t i = 0; i < count; ++i)
    part.values<float>()[static_cast<std::size_t>(i)] = whole.values<float>()[static_cast<std::size_t>(i * step)];
  return part;
}

}  // namespace

std::filesystem::path networks_folder() {
  const char* const given = std::getenv("SHOAL_NETWORKS");
  return given ? std::filesystem::path(given) : test_data() / "vectors" / "networks";
}

std::vector<nlohmann::json> read_networks() {
  const char* const source = std::getenv("SHOAL_SOURCE_DIR");
  std::vector<nlohmann::json> all;
  for (const auto& folder : {networks_folder(), std::filesystem::path(source ? source : ".") / "tests" / "golden" / "networks"}) {
    std::ifstream file(folder / "cases.json");
    if (!file) continue;
    for (nlohmann::json& network : nlohmann::json::parse(file)) {
      network["stem"] = (folder / network.at("name").get<std::string>() / network.at("name").get<std::string>()).string();
      all.push_back(std::move(network));
    }
  }
  return all;
}

nlohmann::json find_network(const std::string& name) {
  for (nlohmann::json& network : read_networks()) {
    if (network.at("name") == name) return network;
  }
  return nullptr;
}

Tensors network_inputs(const nlohmann::json& network, int batch) {
  Tensors inputs;
  for (const auto& [name, rule] : network.at("input").items()) {
    auto dims = rule.at("shape").get<std::vector<std::int64_t>>();
    dims[0] = batch == 1 ? dims[0] : batch;
    Tensor tensor = Tensor::create(DType::kFloat32, Shape(dims)).value();
    const std::span<float> values = tensor.values<float>();
    const float offset = rule.value("value", rule.value("offset", 0.f)), scale = rule.value("scale", 0.f);
    if (rule.contains("ids"))
      make_model::fill_ids(name, rule.at("ids"), values);
    else if (rule.contains("blocks"))
      make_model::fill_picture(name, offset, scale, rule.at("blocks"), tensor.shape(), values);
    else
      make_model::fill(name, offset, scale, 0, values);
    inputs.push_back({name, std::move(tensor)});
  }
  return inputs;
}

NetworkCheckpoint::NetworkCheckpoint(const nlohmann::json& network) {
  const std::string stem = network.at("stem");
  const auto rules = make_model::read_parameter_rules(stem + "-parameters.txt");
  const std::filesystem::path constants_file = stem + "-constants.params";
  const Tensors constants = std::filesystem::exists(constants_file) ? read_arrays(constants_file, "").value() : Tensors();
  status_ = rules.ok() ? make_model::write_checkpoint(stem + "-symbol.json", *rules, prefix(), constants) : rules.status();
}

void expect_network_outputs(const nlohmann::json& network, int batch, const Tensors& outputs, double tolerance) {
  const std::string stored = network.at("stem").get<std::string>() + (batch == 1 ? "" : "-b3") + "-io.params";
  const Tensors expected = read_arrays(stored, "out:").value();
  ASSERT_EQ(outputs.size(), expected.size());
  for (const NamedTensor& want : expected) {
    NamedTensor got = outputs.at(std::stoul(want.name));
    if (const auto sample = network.at("sample").find(want.name); sample != network.at("sample").end())
      got.tensor = every(sample->at("step"), want.tensor.shape().element_count(), got.tensor);
    EXPECT_TRUE(close_to(got.tensor.view(), want.tensor.view(), tolerance))
        << "output " << want.name << " ('" << got.name << "')";
  }
}

}  // namespace shoal::testing
