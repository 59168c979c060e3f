// Whole networks without weights: their entries, inputs, checkpoints and MXNet's outputs.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shoal/status.hpp"
#include "shoal/tensor.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::testing {

/// $SHOAL_NETWORKS, a folder that the oracle's networks.py wrote, or vectors/networks of the test data.
std::filesystem::path networks_folder();
/// The entries of its cases.json and of tests/golden/networks/cases.json. Each also has "stem", which its files begin with.
std::vector<nlohmann::json> read_networks();
/// The entry of that name; null if there is none.
nlohmann::json find_network(const std::string& name);

/// The network's inputs for one batch size, made by their rules.
Tensors network_inputs(const nlohmann::json& network, int batch);

/// A checkpoint of a network in a temporary directory, which the destructor removes.
class NetworkCheckpoint {
 public:
  explicit NetworkCheckpoint(const nlohmann::json& network);
  const Status& status() const { return status_; }
  std::string prefix() const { return scratch_.path("network"); }

 private:
  const shoal::test::ScratchDirectory scratch_;
  Status status_;
};

/// The test fails for each output that differs from MXNet's by more than `tolerance`.
void expect_network_outputs(const nlohmann::json& network, int batch, const Tensors& outputs, double tolerance);

}  // namespace shoal::testing
