// Tensors of a command line: --input name=file.npy in, DIR/<output>.npy out.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "shoal/result.hpp"
#include "shoal/runner.hpp"
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

/// "name=file.npy". Errors: kInvalidArgument, with the argument.
Result<std::vector<InputFile>> parse_inputs(std::span<const std::string> arguments);
/// Errors: those of read_npy().
Result<Tensors> read_inputs(std::span<const InputFile> files);

/// A name as part of a file's name: every character outside [A-Za-z0-9._-] is '_'; a number behind it when `taken` has it
/// already. Adds it.
std::string file_name_of(const std::string& name, std::set<std::string>& taken);

/// Where an output went.
struct OutputFile {
  TensorSpec spec;
  std::string file;
};
/// Writes each output to `directory`, which is made when it is missing.
///   Errors  those of write_npy(), or of making the directory
Result<std::vector<OutputFile>> write_outputs(const Tensors& outputs, const std::string& directory);

/// To standard output: {"outputs": [...]} with `median_ms` when there is one, or a table.
void print_outputs(std::span<const OutputFile> outputs, bool as_json, const double* median_ms = nullptr);

/// One line for each given input that is none of the model's: labels, which the Runner took and ignored.
std::vector<std::string> ignored_input_warnings(const ModelInfo& info, const Tensors& given);

}  // namespace shoal::tool
