// MXNet's answers to graphs with sparse inputs and parameters (tests/fixtures/sparse). Requests bring dense inputs, or their
// parts.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <ostream>

#include "shm/tensor/spec.hpp"
#include "shoal/engine.hpp"
#include "tests/golden/devices.hpp"
#include "tests/support/scratch_directory.hpp"
#include "tests/support/vectors.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"

namespace shoal::testing {
namespace {

namespace fs = std::filesystem;
using worker::Constant;
using worker::NamedArray;

fs::path sparse_folder() {
  const char* const source = std::getenv("SHOAL_SOURCE_DIR");
  return fs::path(source ? source : ".") / "tests" / "fixtures" / "sparse";
}

struct SparseRun {
  std::string device;
  VectorCase vector;
};
void PrintTo(const SparseRun& parameter, std::ostream* out) { *out << parameter.vector.name << " on " << parameter.device; }

std::vector<SparseRun> sparse_runs() {
  std::vector<SparseRun> all;
  for (const VectorCase& vector : read_cases(sparse_folder() / "cases.json")) {
    for (const char* device : kDevices) all.push_back({device, vector});
  }
  return all;
}

/// `extra` elements more, all of them 0xFF.
Tensor tensor_of(const Constant& constant, std::int64_t extra = 0) {
  Shape shape = constant.shape;
  if (extra > 0) shape[0] += extra;
  Tensor tensor = Tensor::create(constant.dtype, shape).value();
  std::memset(tensor.view().data, 0xFF, tensor.view().size_bytes());
  if (!constant.bytes.empty()) std::memcpy(tensor.view().data, constant.bytes.data(), constant.bytes.size());
  return tensor;
}

class SparseCases : public ::testing::TestWithParam<SparseRun> {
 protected:
  void expect_answers(const Tensors& outputs) {
    const Tensors expected = read_arrays(prefix() + "-io.params", "out:").value();
    ASSERT_EQ(outputs.size(), expected.size());
    for (const NamedTensor& want : expected) {
      const NamedTensor& got = outputs.at(std::stoul(want.name));
      EXPECT_TRUE(close_to(got.tensor.view(), want.tensor.view(), GetParam().vector.tolerance)) << got.name;
    }
  }
  static std::string prefix() { return (sparse_folder() / GetParam().vector.name).string(); }

  /// The model with its sparse inputs as parts, and a request for it.
  Result<Engine> load_parts(Tensors& request, std::int64_t extra) {
    const std::string& name = GetParam().vector.name;
    for (const char* end : {"-symbol.json", "-0000.params"}) fs::copy_file(prefix() + end, scratch_.path(name + end));
    std::string inputs, sparse;
    arrays_ = worker::read_mxnet_params(prefix() + "-io.params").value();
    for (const NamedArray& array : arrays_) {
      if (!array.name.starts_with("in:")) continue;
      const std::string input = array.name.substr(3);
      std::string shape;
      for (const std::int64_t size : array.array.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
      inputs +=
          "{name = \"" + input + "\", shape = [" + shape + "], dtype = \"" + std::string(dtype_name(array.array.dtype)) + "\"}, ";
      if (!array.sparse) {
        request.push_back({input, tensor_of(array.array)});
        continue;
      }
      const bool is_csr = array.sparse->storage == worker::Storage::kCsr;
      sparse += input + " = \"" + std::string(worker::storage_name(array.sparse->storage)) + "\", ";
      request.push_back({input + ".values", tensor_of(array.sparse->values, is_csr ? extra : 0)});
      request.push_back({input + ".indices", tensor_of(array.sparse->indices, is_csr ? extra : 0)});
      if (is_csr) request.push_back({input + ".indptr", tensor_of(array.sparse->indptr)});
    }
    if (!sparse.empty()) sparse.resize(sparse.size() - 2);
    std::ofstream(scratch_.path("model.toml")) << "inputs = [" << inputs << "]\nsparse = {" << sparse << "}\n";
    return Engine::load(scratch_.path(name), {.device = GetParam().device, .tuning_ms = 0});
  }

  test::ScratchDirectory scratch_;
  std::vector<NamedArray> arrays_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SparseCases);

TEST_P(SparseCases, GiveMxnetsOutputsForDenseInputs) {
  if (GetParam().vector.name == "dot_beside_nan") GTEST_SKIP() << "a dense product has 0 * NaN";
  const Tensors inputs = read_arrays(prefix() + "-io.params", "in:").value();
  auto model = load_checkpoint(prefix(), 0, GetParam().device, specs_of(inputs));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto outputs = run(**model, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  expect_answers(*outputs);
}

TEST_P(SparseCases, GiveMxnetsOutputsForTheirParts) {
  for (const std::int64_t extra : {0, 3}) {  // elements behind the last row count for nothing
    Tensors request;
    auto engine = load_parts(request, extra);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    const auto outputs = engine->run(request);
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    expect_answers(*outputs);
    for (const char* end : {"-symbol.json", "-0000.params"}) fs::remove(scratch_.path(GetParam().vector.name + end));
  }
}

INSTANTIATE_TEST_SUITE_P(, SparseCases, ::testing::ValuesIn(sparse_runs()),
                         [](const auto& info) { return test_name(info.param.vector.name + "_on_" + info.param.device); });

}  // namespace
}  // namespace shoal::testing
