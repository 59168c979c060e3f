#include "tools/shoal/tensor_files.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/tensor/npy.hpp"
#include "tools/shoal/console.hpp"

namespace shoal::tool {

namespace fs = std::filesystem;

void add_tensor_options(CLI::App& app, std::vector<std::string>& inputs, std::string& directory) {
  app.add_option("--input", inputs, "a .npy file; once per input of the model")
      ->required()
      ->type_name("INPUT=FILE")
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--output", directory, "directory for the outputs; created if it is missing")
      ->required()
      ->type_name("DIR")
      ->check(not_empty);
}

Result<std::vector<InputFile>> parse_inputs(std::span<const std::string> arguments) {
  std::vector<InputFile> inputs;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size()) {
      return invalid_argument("--input {}: write INPUT=FILE.npy, such as data=x.npy", argument);
    }
    inputs.push_back({argument.substr(0, equals), argument.substr(equals + 1)});
  }
  return inputs;
}

Result<Tensors> read_inputs(std::span<const InputFile> files) {
  Tensors tensors;
  for (const InputFile& input : files) {
    auto tensor = read_npy(input.file);
    if (!tensor.ok()) return tensor.status().with_context(format("input '{}'", input.name));
    tensors.push_back({input.name, *std::move(tensor)});
  }
  return tensors;
}

std::string file_name_of(const std::string& name, std::set<std::string>& taken) {
  std::string plain = name.empty() ? "_" : name;
  std::ranges::replace_if(
      plain, [](char c) { return !(std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-'); }, '_');
  std::string unique = plain;
  for (int number = 2; !taken.insert(unique).second; ++number) unique = format("{}-{}", plain, number);
  return unique;
}

Result<std::vector<OutputFile>> write_outputs(const Tensors& outputs, const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return status_from_errno("create directory", directory, error.value());
  std::vector<OutputFile> written;
  std::set<std::string> taken;
  for (const NamedTensor& output : outputs) {
    const fs::path file = fs::path(directory) / (file_name_of(output.name, taken) + ".npy");
    SHOAL_RETURN_IF_ERROR(write_npy(file, output.tensor.view()));
    written.push_back({{output.name, output.tensor.dtype(), output.tensor.shape()}, file.string()});
  }
  return written;
}

void print_outputs(std::span<const OutputFile> outputs, bool as_json, const double* median_ms) {
  if (as_json) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [spec, file] : outputs) {
      const auto dims = spec.shape.dims();
      list.push_back({{"name", spec.name},
                      {"dtype", dtype_name(spec.dtype)},
                      {"shape", std::vector<std::int64_t>(dims.begin(), dims.end())},
                      {"file", file}});
    }
    nlohmann::json object{{"outputs", list}};
    if (median_ms) object["median_ms"] = *median_ms;
    std::printf("%s\n", json_text(object).c_str());
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [spec, file] : outputs)
    rows.push_back({spec.name, std::string(dtype_name(spec.dtype)), spec.shape.to_string(), file});
  std::fputs(align_columns(rows, {false, false, false, false}).c_str(), stdout);
  if (median_ms) std::printf("median %.3f ms per run\n", *median_ms);
}

std::vector<std::string> ignored_input_warnings(const ModelInfo& info, const Tensors& given) {
  std::vector<std::string> warnings;
  for (const NamedTensor& tensor : given) {
    if (std::ranges::count(info.inputs, tensor.name, &TensorSpec::name) == 0) {
      warnings.push_back(
          format("model '{}': input '{}' is a label, which no output needs; it is ignored", info.name, tensor.name));
    }
  }
  return warnings;
}

}  // namespace shoal::tool
