// Tensors as files: --input name=file.npy, and DIR/<output>.npy for outputs.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "shoal/client.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace CLI {
class App;
}

namespace shoal::tool {

/// One --input.
struct InputFile {
  std::string name;
  std::string file;
};

/// Adds --input and --output.
void add_tensor_options(CLI::App& app, std::vector<std::string>& inputs, std::string& directory);

/// Parses "name=file.npy". Errors: kInvalidArgument (names the argument).
Result<std::vector<InputFile>> parse_inputs(std::span<const std::string> arguments);
/// Errors: those of read_npy().
Result<Tensors> read_inputs(std::span<const InputFile> files);

/// Turns a name into a file name: every character outside [A-Za-z0-9._-] becomes '_', and a number is appended if `taken` already
/// has that name. Adds the result to `taken`.
std::string file_name_of(const std::string& name, std::set<std::string>& taken);

/// An output and its file.
struct OutputFile {
  TensorSpec spec;
  std::string file;
};
/// Writes each output to `directory`, and makes the directory if it is missing.
///   Errors  those of write_npy() and of making the directory
Result<std::vector<OutputFile>> write_outputs(const Tensors& outputs, const std::string& directory);

/// Prints {"outputs": [...]}, with `median_ms` if given, or a table.
void print_outputs(std::span<const OutputFile> outputs, bool as_json, const double* median_ms = nullptr);

/// A warning for each given input that the model does not have. These are labels, which were ignored.
std::vector<std::string> ignored_input_warnings(const ModelInfo& info, const Tensors& given);

}  // namespace shoal::tool
