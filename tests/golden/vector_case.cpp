#include "tests/golden/vector_case.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "shm/tensor/spec.hpp"
#include "tests/support/vectors.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"

namespace shoal::testing {
namespace {

namespace fs = std::filesystem;
using worker::Constant;
using worker::NamedArray;

fs::path tests_folder() {
  const char* const source = std::getenv("SHOAL_SOURCE_DIR");
  return fs::path(source ? source : ".") / "tests";
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

}  // namespace

std::vector<fs::path> vector_folders() {
  std::vector<fs::path> folders;
  for (int number = 1; number <= 6; ++number) folders.push_back(test_data() / "vectors" / ("tier" + std::to_string(number)));
  for (const char* const name : {"quantized", "numpy"}) folders.push_back(tests_folder() / "golden" / name);
  return folders;
}

fs::path sparse_folder() { return tests_folder() / "fixtures" / "sparse"; }

PartsRequest read_parts(const std::string& prefix, std::int64_t extra) {
  PartsRequest request;
  const std::vector<NamedArray> arrays = worker::read_mxnet_params(prefix + "-io.params").value();
  for (const NamedArray& array : arrays) {
    if (!array.name.starts_with("in:")) continue;
    const std::string name = array.name.substr(3);
    request.inputs.push_back({name, array.array.dtype, array.array.shape});
    if (!array.sparse) {
      request.tensors.push_back({name, tensor_of(array.array)});
      continue;
    }
    const bool is_csr = array.sparse->storage == worker::Storage::kCsr;
    request.sparse[name] = worker::storage_name(array.sparse->storage);
    request.tensors.push_back({name + ".values", tensor_of(array.sparse->values, is_csr ? extra : 0)});
    request.tensors.push_back({name + ".indices", tensor_of(array.sparse->indices, is_csr ? extra : 0)});
    if (is_csr) request.tensors.push_back({name + ".indptr", tensor_of(array.sparse->indptr)});
  }
  return request;
}

std::string inputs_toml(const std::vector<TensorSpec>& inputs, const std::map<std::string, std::string>& sparse) {
  std::string text = "inputs = [";
  for (const TensorSpec& input : inputs) {
    text += "{name = \"" + input.name + "\", dtype = \"" + std::string(dtype_name(input.dtype)) + "\", shape = [";
    for (const std::int64_t dim : input.shape) text += std::to_string(dim) + ",";
    text += "]},";
  }
  text += "]\nsparse = {";
  std::string pairs;
  for (const auto& [name, storage] : sparse) pairs += (pairs.empty() ? "" : ", ") + name + " = \"" + storage + "\"";
  return text + pairs + "}\n";
}

void expect_answers(const std::string& prefix, const Tensors& outputs, double tolerance) {
  const Tensors expected = read_arrays(prefix + "-io.params", "out:").value();
  ASSERT_EQ(outputs.size(), expected.size());
  for (const NamedTensor& want : expected) {
    const NamedTensor& got = outputs.at(std::stoul(want.name));
    EXPECT_TRUE(close_to(got.tensor.view(), want.tensor.view(), tolerance))
        << "output " << want.name << " ('" << got.name << "')";
  }
}

}  // namespace shoal::testing
