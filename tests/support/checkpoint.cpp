#include "tests/support/checkpoint.hpp"

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>

namespace shoal::test {
namespace {

using nlohmann::json;

template <typename T>
void put(std::ofstream& out, T value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof value);
}

void write_params(const std::filesystem::path& file, const std::map<std::string, std::vector<float>>& weights) {
  std::ofstream out(file, std::ios::binary);
  put<std::uint64_t>(out, 0x112);
  put<std::uint64_t>(out, 0);
  put<std::uint64_t>(out, weights.size());
  for (const auto& [name, values] : weights) {
    put<std::uint32_t>(out, 0xF993fac9);  // V2
    put<std::int32_t>(out, 0);            // dense
    put<std::int32_t>(out, 1);            // rank
    put<std::int64_t>(out, static_cast<std::int64_t>(values.size()));
    put<std::int32_t>(out, 1);  // device: cpu
    put<std::int32_t>(out, 0);
    put<std::int32_t>(out, 0);  // float32
    out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  put<std::uint64_t>(out, weights.size());
  for (const auto& [name, values] : weights) {
    const std::string full = "arg:" + name;
    put<std::uint64_t>(out, full.size());
    out.write(full.data(), static_cast<std::streamsize>(full.size()));
  }
}

void write_files(const std::filesystem::path& directory, const std::string& prefix, const std::string& symbol,
                 const std::map<std::string, std::vector<float>>& weights, const std::string& inputs) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory / (prefix + "-symbol.json")) << symbol;
  write_params(directory / (prefix + "-0000.params"), weights);
  std::ofstream(directory / "model.toml") << "inputs = " << inputs << "\n";
}

}  // namespace

void write_checkpoint(const std::filesystem::path& directory, const std::string& prefix, const std::vector<ChainNode>& chain,
                      const std::string& shape) {
  json nodes = json::array({{{"op", "null"}, {"name", "data"}, {"inputs", json::array()}}});
  json arguments = json::array({0});
  std::map<std::string, std::vector<float>> weights;
  std::size_t previous = 0;
  for (const ChainNode& node : chain) {
    json inputs = json::array({{previous, 0, 0}});
    for (const auto& [name, values] : node.weights) {
      arguments.push_back(nodes.size());
      inputs.push_back({nodes.size(), 0, 0});
      nodes.push_back({{"op", "null"}, {"name", name}, {"inputs", json::array()}});
      weights[name] = values;
    }
    previous = nodes.size();
    nodes.push_back({{"op", node.op}, {"name", node.name}, {"attrs", node.attributes}, {"inputs", inputs}});
  }
  json row_ptr = json::array();
  for (std::size_t i = 0; i <= nodes.size(); ++i) row_ptr.push_back(i);
  const json symbol{{"nodes", nodes},
                    {"arg_nodes", arguments},
                    {"node_row_ptr", row_ptr},
                    {"heads", {{previous, 0, 0}}},
                    {"attrs", {{"mxnet_version", {"int", 10901}}}}};
  write_files(directory, prefix, symbol.dump(1), weights, "[{name = \"data\", shape = " + shape + "}]");
}

void write_graph(const std::filesystem::path& directory, const std::string& prefix, const std::string& symbol,
                 const std::string& inputs, const std::map<std::string, std::vector<float>>& weights) {
  write_files(directory, prefix, symbol, weights, inputs);
}

}  // namespace shoal::test
