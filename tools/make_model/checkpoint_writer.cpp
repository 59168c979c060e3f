#include "tools/make_model/checkpoint_writer.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "shm/base/errors.hpp"
#include "tools/make_model/rule_fill.hpp"

namespace shoal::make_model {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;  // numbers per block

template <typename T>
void put(std::ofstream& file, T value) {
  file.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Writes a dense float32 V2 record.
void put_array(std::ofstream& file, const ParameterRule& rule, std::vector<float>& block) {
  put<std::uint32_t>(file, 0xF993fac9);
  put<std::int32_t>(file, 0);  // dense
  put<std::int32_t>(file, rule.shape.rank());
  for (const std::int64_t dim : rule.shape) put(file, dim);
  put<std::int32_t>(file, 1);  // cpu
  put<std::int32_t>(file, 0);  // device 0
  put<std::int32_t>(file, 0);  // float32
  const auto count = static_cast<std::uint64_t>(rule.shape.element_count());
  for (std::uint64_t first = 0; first < count; first += kBlock) {
    const std::span<float> part = std::span(block).first(std::min<std::uint64_t>(kBlock, count - first));
    fill(rule.name(), rule.offset, rule.scale, first, part);
    file.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size_bytes()));
  }
}

}  // namespace

Status write_params(const std::filesystem::path& params_file, std::span<const ParameterRule> rules) {
  std::ofstream file(params_file, std::ios::binary | std::ios::trunc);
  put<std::uint64_t>(file, 0x112);
  put<std::uint64_t>(file, 0);
  put<std::uint64_t>(file, rules.size());
  std::vector<float> block(kBlock);
  for (const ParameterRule& rule : rules) put_array(file, rule, block);
  put<std::uint64_t>(file, rules.size());
  for (const ParameterRule& rule : rules) {
    put<std::uint64_t>(file, rule.key.size());
    file.write(rule.key.data(), static_cast<std::streamsize>(rule.key.size()));
  }
  file.close();
  if (!file) return internal_error("{} could not be written (directory missing or disk full?)", params_file.string());
  return {};
}

Status write_checkpoint(const std::filesystem::path& symbol_file, std::span<const ParameterRule> rules,
                        const std::filesystem::path& prefix) {
  const std::filesystem::path symbol_copy = prefix.string() + "-symbol.json";
  std::error_code error;
  std::filesystem::copy_file(symbol_file, symbol_copy, std::filesystem::copy_options::overwrite_existing, error);
  if (error) return internal_error("copy {} to {}: {}", symbol_file.string(), symbol_copy.string(), error.message());
  return write_params(prefix.string() + "-0000.params", rules);
}

}  // namespace shoal::make_model
