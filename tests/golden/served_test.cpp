// A tenth of all cases, chosen by seed, through a real daemon: every case is loaded, answers one request, and is unloaded.
//   SHOAL_SERVED_SEED  which tenth; default 1. SHOAL_TEST_LONG=1 serves all cases
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <thread>

#include "shm/tensor/npy.hpp"
#include "tests/golden/network_case.hpp"
#include "tests/golden/refusal_case.hpp"
#include "tests/golden/vector_case.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/vectors.hpp"

namespace shoal::testing {
namespace {

namespace fs = std::filesystem;
using test::ScratchDirectory;

constexpr const char* kDevices[] = {"cpu", "cpu-reference"};
constexpr double kReferenceGflop = 1;  // larger networks take long with plain loops
constexpr unsigned kClients = 3;       // that load and unload models at the same time
constexpr auto kTimeout = std::chrono::seconds(120);

/// A model to serve, in a directory of its own that lives as long as `keeps`.
struct Served {
  fs::path directory;
  std::vector<TensorSpec> specs;  // of its inputs
  std::function<void(Pool&, const std::string& name)> check_answer;
  std::function<void(const Status&)> check_refusal;  // instead, of a model that must not load
  std::shared_ptr<void> keeps;
  std::map<std::string, std::string> sparse = {};  // inputs that the request brings as parts
};
struct Case {
  std::string title;
  std::function<Served()> open;
};

bool serves_all() {
  const char* const wish = std::getenv("SHOAL_TEST_LONG");
  return wish && std::string_view(wish) == "1";
}

unsigned seed() {
  const char* const text = std::getenv("SHOAL_SERVED_SEED");
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 1;
}

std::vector<TensorSpec> specs_of(const Tensors& tensors) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& tensor : tensors) specs.push_back({tensor.name, tensor.tensor.dtype(), tensor.tensor.shape()});
  return specs;
}

/// A copy of a checkpoint, because its folder has many, and model.toml belongs to one.
std::shared_ptr<ScratchDirectory> copy_checkpoint(const std::string& prefix, int epoch) {
  auto copy = std::make_shared<ScratchDirectory>();
  char ending[32];
  std::snprintf(ending, sizeof(ending), "-%04d.params", epoch);
  for (const std::string& end : {std::string("-symbol.json"), std::string(ending)}) {
    if (fs::exists(prefix + end)) fs::copy_file(prefix + end, copy->path("model" + end));
  }
  return copy;
}

void write_model_toml(const Served& served, const std::string& device) {
  std::ofstream file(served.directory / "model.toml");
  file << "device = \"" << device << "\"\nworkers = 1\ntuning_ms = 0\n" << inputs_toml(served.specs, served.sparse);
}

/// What the pool answers, by the names that it describes.
void ask(Pool& pool, const std::string& name, const Tensors& inputs, const std::function<void(const Tensors&)>& expect) {
  const auto info = pool.describe(name);
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  for (const TensorSpec& spec : info->inputs) {
    const auto given = std::ranges::find(inputs, spec.name, &NamedTensor::name);
    ASSERT_NE(given, inputs.end()) << "the pool wants input '" << spec.name << "'";
    EXPECT_EQ(dtype_name(spec.dtype), dtype_name(given->tensor.dtype())) << spec.name;
  }
  const auto outputs = pool.predict(name, inputs, {.timeout = kTimeout});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  ASSERT_EQ(outputs->size(), info->outputs.size());
  for (std::size_t i = 0; i < outputs->size(); ++i) EXPECT_EQ(outputs->at(i).name, info->outputs[i].name);
  expect(*outputs);
}

// ---- the cases of each folder

Served serve_vector(const std::string& prefix, double tolerance, const PartsRequest& request) {
  const auto copy = copy_checkpoint(prefix, 0);
  const auto expect = [=](const Tensors& outputs) { expect_answers(prefix, outputs, tolerance); };
  const auto check = [=](Pool& pool, const std::string& name) { ask(pool, name, request.tensors, expect); };
  return {copy->path(), request.inputs, check, {}, copy, request.sparse};
}

PartsRequest read_dense(const std::string& prefix) {
  const Tensors inputs = read_arrays(prefix + "-io.params", "in:").value();
  return {inputs, specs_of(inputs), {}};
}

std::vector<Case> vector_cases() {
  std::vector<Case> all;
  for (const fs::path& folder : vector_folders()) {
    for (const VectorCase& vector : read_cases(folder / "cases.json")) {
      const std::string prefix = (folder / vector.name).string();
      all.push_back({folder.filename().string() + "/" + vector.name,
                     [=] { return serve_vector(prefix, vector.tolerance, read_dense(prefix)); }});
    }
  }
  for (const VectorCase& vector : read_cases(sparse_folder() / "cases.json")) {
    const std::string prefix = (sparse_folder() / vector.name).string();
    all.push_back(
        {"sparse/" + vector.name + " by parts", [=] { return serve_vector(prefix, vector.tolerance, read_parts(prefix)); }});
    if (vector.name == kOnlyAsParts) continue;
    all.push_back({"sparse/" + vector.name, [=] { return serve_vector(prefix, vector.tolerance, read_dense(prefix)); }});
  }
  return all;
}

std::vector<Case> format_cases() {
  std::vector<Case> all;
  const fs::path folder = test_data() / "vectors" / "formats";
  std::ifstream file(folder / "cases.json");
  if (!file) return all;
  for (const auto& entry : nlohmann::json::parse(file)) {
    all.push_back({"formats/" + entry.at("name").get<std::string>(), [=] {
                     const auto copy =
                         copy_checkpoint((folder / entry.at("prefix").get<std::string>()).string(), entry.at("epoch"));
                     Tensors inputs;
                     for (const auto& [name, npy] : entry.at("input").items())
                       inputs.push_back({name, read_npy(folder / npy.get<std::string>()).value()});
                     const auto expect = [=](const Tensors& outputs) {
                       ASSERT_EQ(outputs.size(), entry.at("outputs").size());
                       for (std::size_t i = 0; i < outputs.size(); ++i) {
                         const Tensor want = read_npy(folder / entry.at("outputs")[i].get<std::string>()).value();
                         EXPECT_TRUE(close_to(outputs[i].tensor.view(), want.view(), entry.at("tolerance"))) << outputs[i].name;
                       }
                     };
                     return Served{copy->path(),
                                   specs_of(inputs),
                                   [=](Pool& pool, const std::string& name) { ask(pool, name, inputs, expect); },
                                   {},
                                   copy};
                   }});
  }
  return all;
}

std::vector<Case> network_cases() {
  std::vector<Case> all;
  for (const nlohmann::json& network : read_networks()) {
    const std::string name = network.at("name");
    all.push_back({"networks/" + name, [=] {
                     auto checkpoint = std::make_shared<NetworkCheckpoint>(network);
                     EXPECT_TRUE(checkpoint->status().ok()) << checkpoint->status().to_string();
                     const Tensors inputs = network_inputs(network, 1);
                     const auto expect = [=](const Tensors& outputs) {
                       expect_network_outputs(network, 1, outputs, network.at("tolerance").get<double>());
                     };
                     return Served{fs::path(checkpoint->prefix()).parent_path(),
                                   specs_of(inputs),
                                   [=](Pool& pool, const std::string& model) { ask(pool, model, inputs, expect); },
                                   {},
                                   checkpoint};
                   }});
  }
  return all;
}

std::vector<Case> refusal_cases() {
  std::vector<Case> all;
  for (const Refusal& refusal : read_refusals("cases.json")) {
    all.push_back({"refusals/" + refusal.name, [=] {
                     const auto copy = copy_checkpoint((refusals_folder() / refusal.name).string(), 0);
                     const auto expect = [=](const Status& status) { expect_refused(refusal, status); };
                     return Served{copy->path(), refusal.inputs, {}, expect, copy};
                   }});
  }
  return all;
}

/// Serves the cases one after the other, `kClients` at the same time, with one daemon. The seed chooses each one's device.
void serve(std::vector<Case> cases, const std::function<bool(const Case&, const std::string&)>& can_run = {}) {
  if (cases.empty()) GTEST_SKIP() << "no data in " << test_data() << "; set SHOAL_TEST_DATA";
  std::mt19937 random(seed());
  std::ranges::shuffle(cases, random);
  if (!serves_all()) cases.resize((cases.size() + 9) / 10);
  std::cout << cases.size() << " cases, SHOAL_SERVED_SEED=" << seed() << "\n" << std::flush;
  std::vector<std::string> devices;
  for (const Case& one : cases) {
    const std::string device = kDevices[random() % 2];
    devices.push_back(!can_run || can_run(one, device) ? device : kDevices[0]);
  }
  test::DaemonFixture daemon;  // serves builtin:identity, too
  Pool pool = daemon.connect();
  std::atomic<std::size_t> next = 0;
  const auto serve_some = [&] {
    for (std::size_t at; (at = next++) < cases.size();) {
      SCOPED_TRACE(cases[at].title + " on " + devices[at] + ", SHOAL_SERVED_SEED=" + std::to_string(seed()));
      const Served served = cases[at].open();
      write_model_toml(served, devices[at]);
      const std::string name = "case" + std::to_string(at);
      const auto loaded = pool.load(name, served.directory.string());
      if (served.check_refusal) {
        EXPECT_FALSE(loaded.ok()) << "was loaded";
        if (!loaded.ok()) served.check_refusal(loaded.status());
      } else {
        EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
        if (loaded.ok()) served.check_answer(pool, name);
      }
      const bool is_gone = !loaded.ok() || pool.unload(name).ok();
      EXPECT_TRUE(is_gone);
    }
  };
  std::vector<std::jthread> clients;
  for (unsigned i = 0; i < kClients; ++i) clients.emplace_back(serve_some);
  clients.clear();
  // A model that failed to load is gone shortly after the answer.
  EXPECT_TRUE(test::eventually([&] { return pool.list().value() == std::vector<std::string>{"echo"}; }));
}

TEST(Served, VectorsGiveMxnetsOutputs) { serve(vector_cases()); }

TEST(Served, CheckpointsOfEveryReleaseGiveItsOutputs) { serve(format_cases()); }

TEST(Served, NetworksGiveMxnetsOutputs) {
  serve(network_cases(), [](const Case& one, const std::string& device) {
    const auto network = find_network(fs::path(one.title).filename());
    return device == "cpu" || network.at("gflop") <= kReferenceGflop;
  });
}

TEST(Served, RefusedModelsNameWhatIsWrong) { serve(refusal_cases()); }

}  // namespace
}  // namespace shoal::testing
