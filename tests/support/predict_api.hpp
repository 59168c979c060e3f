// MXNet's C predict API, as tests call it.
#pragma once

#include <gtest/gtest.h>
#include <mxnet/c_predict_api.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace shoal::test {

/// What a program reads from the files of a checkpoint.
struct Checkpoint {
  std::string symbol, params;
};
inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
inline Checkpoint read_checkpoint(const std::string& prefix, int epoch = 0) {
  char number[16];
  std::snprintf(number, sizeof number, "-%04d", epoch);
  return {file_text(prefix + "-symbol.json"), file_text(prefix + number + ".params")};
}

using Sizes = std::vector<std::uint32_t>;

/// The arguments num_input_nodes, input_keys, input_shape_indptr and input_shape_data.
class InputShapes {
 public:
  InputShapes(std::initializer_list<std::pair<std::string, Sizes>> inputs) {
    for (const auto& [name, sizes] : inputs) add(name, sizes);
  }
  InputShapes() = default;
  void add(const std::string& name, const Sizes& sizes) {
    names_.push_back(name);
    data_.insert(data_.end(), sizes.begin(), sizes.end());
    indptr_.push_back(static_cast<std::uint32_t>(data_.size()));
    keys_.clear();
    for (const std::string& each : names_) keys_.push_back(each.c_str());
  }
  InputShapes(const InputShapes&) = delete;  // the keys point into the names
  InputShapes& operator=(const InputShapes&) = delete;

  std::uint32_t count() const { return static_cast<std::uint32_t>(names_.size()); }
  const char** keys() const { return keys_.data(); }
  const std::uint32_t* indptr() const { return indptr_.data(); }
  const std::uint32_t* data() const { return data_.data(); }

 private:
  std::vector<std::string> names_;
  mutable std::vector<const char*> keys_;
  Sizes indptr_{0}, data_;
};

struct FreePredictor {
  void operator()(PredictorHandle handle) const { EXPECT_EQ(MXPredFree(handle), 0) << MXGetLastError(); }
};
using PredictorPtr = std::unique_ptr<void, FreePredictor>;

/// Calls MXPredCreate() for the CPU. Null if it fails.
inline PredictorPtr try_create(const Checkpoint& model, const InputShapes& inputs, int dev_type = 1) {
  PredictorHandle handle = nullptr;
  const int result = MXPredCreate(model.symbol.c_str(), model.params.data(), static_cast<int>(model.params.size()), dev_type, 0,
                                  inputs.count(), inputs.keys(), inputs.indptr(), inputs.data(), &handle);
  EXPECT_EQ(result, handle == nullptr ? -1 : 0);
  return PredictorPtr(handle);
}
inline PredictorPtr create(const Checkpoint& model, const InputShapes& inputs) {
  PredictorPtr made = try_create(model, inputs);
  EXPECT_TRUE(made) << MXGetLastError();
  return made;
}
inline PredictorPtr create_partial(const Checkpoint& model, const InputShapes& inputs, std::vector<const char*> outputs) {
  PredictorHandle handle = nullptr;
  MXPredCreatePartialOut(model.symbol.c_str(), model.params.data(), static_cast<int>(model.params.size()), 1, 0, inputs.count(),
                         inputs.keys(), inputs.indptr(), inputs.data(), static_cast<std::uint32_t>(outputs.size()),
                         outputs.data(), &handle);
  return PredictorPtr(handle);
}
/// Empty if MXPredCreateMultiThread() fails.
inline std::vector<PredictorPtr> create_several(const Checkpoint& model, const InputShapes& inputs, int count) {
  std::vector<PredictorHandle> handles(static_cast<std::size_t>(count));
  const int result =
      MXPredCreateMultiThread(model.symbol.c_str(), model.params.data(), static_cast<int>(model.params.size()), 1, 0,
                              inputs.count(), inputs.keys(), inputs.indptr(), inputs.data(), count, handles.data());
  std::vector<PredictorPtr> made;
  for (const PredictorHandle handle : handles) {
    if (result == 0) made.emplace_back(handle);
  }
  return made;
}
inline PredictorPtr reshape(const PredictorPtr& predictor, const InputShapes& inputs) {
  PredictorHandle handle = nullptr;
  MXPredReshape(inputs.count(), inputs.keys(), inputs.indptr(), inputs.data(), predictor.get(), &handle);
  return PredictorPtr(handle);
}

inline Sizes shape_of(const PredictorPtr& predictor, std::uint32_t index = 0) {
  std::uint32_t* data = nullptr;
  std::uint32_t rank = 0;
  EXPECT_EQ(MXPredGetOutputShape(predictor.get(), index, &data, &rank), 0) << MXGetLastError();
  return {data, data + rank};
}
inline int type_of(const PredictorPtr& predictor, std::uint32_t index = 0) {
  int type = -1;
  EXPECT_EQ(MXPredGetOutputType(predictor.get(), index, &type), 0) << MXGetLastError();
  return type;
}
/// Elements of type T, which must be the input's.
template <typename T>
void set(const PredictorPtr& predictor, const char* key, const std::vector<T>& values) {
  EXPECT_EQ(MXPredSetInput(predictor.get(), key, reinterpret_cast<const float*>(values.data()),
                           static_cast<std::uint32_t>(values.size())),
            0)
      << MXGetLastError();
}
template <typename T = float>
std::vector<T> output_of(const PredictorPtr& predictor, std::uint32_t index = 0) {
  const Sizes shape = shape_of(predictor, index);
  std::vector<T> values(std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>()));
  EXPECT_EQ(
      MXPredGetOutput(predictor.get(), index, reinterpret_cast<float*>(values.data()), static_cast<std::uint32_t>(values.size())),
      0)
      << MXGetLastError();
  return values;
}
inline void forward(const PredictorPtr& predictor) { EXPECT_EQ(MXPredForward(predictor.get()), 0) << MXGetLastError(); }
/// Sets the input `data`, runs the model and returns its first output.
inline std::vector<float> ask(const PredictorPtr& predictor, const std::vector<float>& data) {
  set(predictor, "data", data);
  forward(predictor);
  return output_of(predictor);
}

}  // namespace shoal::test
