#include "tools/make_model/checkpoint_writer.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "shm/base/errors.hpp"
#include "tools/make_model/rule_fill.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"

namespace shoal::make_model {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;  // numbers per block

template <typename T>
void put(std::ofstream& file, T value) {
  file.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_bytes(std::ofstream& file, std::span<const std::byte> bytes) {
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void put_text(std::ofstream& file, std::string_view text) {
  put<std::uint64_t>(file, text.size());
  put_bytes(file, std::as_bytes(std::span(text)));
}

/// Of a dense float32 V2 record; the numbers follow.
void put_head(std::ofstream& file, const Shape& shape) {
  put<std::uint32_t>(file, 0xF993fac9);
  put<std::int32_t>(file, 0);  // dense
  put<std::int32_t>(file, shape.rank());
  for (const std::int64_t dim : shape) put(file, dim);
  put<std::int32_t>(file, 1);  // cpu
  put<std::int32_t>(file, 0);  // device 0
  put<std::int32_t>(file, 0);  // float32
}

void put_array(std::ofstream& file, const ParameterRule& rule, std::vector<float>& block) {
  put_head(file, rule.shape);
  const auto count = static_cast<std::uint64_t>(rule.shape.element_count());
  for (std::uint64_t first = 0; first < count; first += kBlock) {
    const std::span<float> part = std::span(block).first(std::min<std::uint64_t>(kBlock, count - first));
    fill(rule.name(), rule.offset, rule.scale, first, part);
    put_bytes(file, std::as_bytes(part));
  }
}

}  // namespace

Result<std::vector<NamedTensor>> read_constants(const std::filesystem::path& params_file) {
  SHOAL_ASSIGN_OR_RETURN(const auto arrays, worker::read_mxnet_params(params_file));
  std::vector<NamedTensor> constants;
  for (const auto& [name, array, sparse] : arrays) {
    if (sparse) return invalid_argument("{}: '{}' is sparse: constants are dense", params_file.string(), name);
    if (array.dtype != DType::kFloat32) return invalid_argument("{}: '{}' is not float32", params_file.string(), name);
    SHOAL_ASSIGN_OR_RETURN(Tensor tensor, Tensor::create(array.dtype, array.shape));
    std::memcpy(tensor.view().data, array.bytes.data(), array.bytes.size());
    constants.push_back({name, std::move(tensor)});
  }
  return constants;
}

Status write_params(const std::filesystem::path& params_file, std::span<const ParameterRule> rules,
                    std::span<const NamedTensor> constants) {
  std::ofstream file(params_file, std::ios::binary | std::ios::trunc);
  put<std::uint64_t>(file, 0x112);
  put<std::uint64_t>(file, 0);
  const std::uint64_t count = rules.size() + constants.size();
  put(file, count);
  std::vector<float> block(kBlock);
  for (const ParameterRule& rule : rules) put_array(file, rule, block);
  for (const NamedTensor& constant : constants) {
    put_head(file, constant.tensor.shape());
    put_bytes(file, constant.tensor.view().bytes());
  }
  put(file, count);
  for (const ParameterRule& rule : rules) put_text(file, rule.key);
  for (const NamedTensor& constant : constants) put_text(file, constant.name);
  file.close();
  if (!file) return internal_error("{} could not be written (directory missing or disk full?)", params_file.string());
  return {};
}

Status write_checkpoint(const std::filesystem::path& symbol_file, std::span<const ParameterRule> rules,
                        const std::filesystem::path& prefix, std::span<const NamedTensor> constants) {
  const std::filesystem::path symbol_copy = prefix.string() + "-symbol.json";
  std::error_code error;
  std::filesystem::copy_file(symbol_file, symbol_copy, std::filesystem::copy_options::overwrite_existing, error);
  if (error) return internal_error("copy {} to {}: {}", symbol_file.string(), symbol_copy.string(), error.message());
  return write_params(prefix.string() + "-0000.params", rules, constants);
}

}  // namespace shoal::make_model
