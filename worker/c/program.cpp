// shoal_program: an engine whose inputs have places, as those of MXNet's cached operator have.
#include <algorithm>
#include <array>
#include <thread>

#include "shm/base/errors.hpp"
#include "shm/c/arguments.hpp"
#include "shm/c/call.hpp"
#include "shm/model/model_config.hpp"
#include "shm/model/model_kind.hpp"
#include "shm/tensor/spec.hpp"
#include "shoal/engine.hpp"
#include "worker/c/engine_handles.hpp"
#include "worker/c/program_inputs.hpp"
#include "worker/import/mxnet/mxnet_symbol.hpp"

namespace shoal::c {
namespace {

/// A file of parameters that has none: its magic number, a reserved one, no arrays, no names.
constexpr std::array<std::uint64_t, 4> kNoParameters = {0x112, 0, 0, 0};

struct ProgramOptions {
  ProgramFlags flags;
  EngineOptions engine;
  std::string name;
};

Result<ProgramOptions> program_options_of(const shoal_program_options* given) {
  SHOAL_ASSIGN_OR_RETURN(const shoal_program_options read, read_struct(given, "SHOAL_PROGRAM_OPTIONS_INIT"));
  ProgramOptions options{.name = read.name ? read.name : "program"};
  SHOAL_ASSIGN_OR_RETURN(options.flags, program_flags(read.keys, read.values, read.flag_count));
  SHOAL_ASSIGN_OR_RETURN(std::vector<TensorSpec> inputs, descriptors_of(read.inputs, read.input_count, "inputs"));
  if (!inputs.empty()) options.engine.shapes = {std::move(inputs)};
  options.engine.precision = text_or_empty(read.precision);
  SHOAL_ASSIGN_OR_RETURN(options.engine.threads, number_of("threads", read.threads, 0, 1));
  const int width = std::max(options.engine.threads, 1), cores = static_cast<int>(std::thread::hardware_concurrency());
  SHOAL_ASSIGN_OR_RETURN(options.engine.contexts, number_of("contexts", read.contexts, std::max(cores / width, 1), 1));
  return options;
}

std::vector<std::string> names_of_variables(const worker::MxnetSymbol& symbol) {
  std::vector<std::string> names;
  for (const std::size_t node : worker::list_variables(symbol)) names.push_back(symbol.nodes[node].name);
  return names;
}

/// All inputs of the symbol, parameters included, in the order of MXNet's list_inputs.
Result<std::vector<std::string>> variables_in(const worker::ForeignFile& symbol) {
  worker::MemoryBudget budget{worker::ImportLimits()};
  SHOAL_ASSIGN_OR_RETURN(const worker::MxnetSymbol parsed, worker::parse_mxnet_symbol(symbol, budget));
  return names_of_variables(parsed);
}

/// The same of a model on disk; none if it is of another format, whose inputs have no such order.
Result<std::vector<std::string>> variables_at(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, find_model(path));
  const ModelKind* const kind = kind_of(files.files.front().filename().string());
  if (!kind || kind->name != "mxnet") return std::vector<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const worker::MxnetSymbol symbol, worker::read_mxnet_symbol(files.files.front()));
  return names_of_variables(symbol);
}

/// Gives the engine's inputs their places.
Status give_program(Engine engine, const ProgramFlags& flags, const std::vector<std::string>& variables, shoal_program** handle) {
  SHOAL_ASSIGN_OR_RETURN(ModelInfo info, engine.describe());
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         program_inputs(flags, variables, info.inputs, engine.ignored_inputs()));
  std::vector<TensorSpec> inputs;
  for (const std::string& name : names) {
    const auto known = std::ranges::find(info.inputs, name, &TensorSpec::name);
    inputs.push_back(known == info.inputs.end() ? TensorSpec{.name = name} : *known);  // else a label, of any shape
  }
  info.inputs = std::move(inputs);
  return give(EngineHandle(std::move(engine), std::move(info)), handle);
}

Status invoke(EngineHandle& program, shoal_tensor* const* inputs, std::size_t input_count, shoal_tensor** outputs,
              std::size_t output_count) {
  const std::vector<TensorSpec>&wanted = program.info->inputs, &results = program.info->outputs;
  SHOAL_RETURN_IF_ERROR(check_array(inputs, input_count, "inputs"));
  SHOAL_RETURN_IF_ERROR(check_array(outputs, output_count, "outputs"));
  if (input_count != wanted.size())
    return invalid_argument("input_count is {}, and the program takes {}: {}", input_count, wanted.size(), names_of(wanted));
  if (output_count != results.size())
    return invalid_argument("output_count is {}, and the program gives {}: {}", output_count, results.size(), names_of(results));
  Tensors given;
  given.reserve(input_count);
  for (std::size_t i = 0; i < input_count; ++i) {
    if (!inputs[i]) return invalid_argument("inputs[{}] ('{}') is NULL", i, wanted[i].name);
    given.push_back({wanted[i].name, object_of(inputs[i])});
  }
  SHOAL_ASSIGN_OR_RETURN(Tensors made, program.engine.run(given));
  std::vector<std::unique_ptr<Tensor>> fresh(output_count);
  for (std::size_t i = 0; i < output_count; ++i) {
    if (outputs[i]) {
      const Tensor& own = object_of(outputs[i]);
      SHOAL_RETURN_IF_ERROR(check_matches({made[i].name, made[i].tensor.dtype(), made[i].tensor.shape()}, own.dtype(),
                                          own.shape(), "the memory for output"));
    } else {
      fresh[i] = std::make_unique<Tensor>(std::move(made[i].tensor));
    }
  }
  for (std::size_t i = 0; i < output_count; ++i) {
    if (fresh[i])
      outputs[i] = handle_of<shoal_tensor>(fresh[i].release());
    else
      std::ranges::copy(made[i].tensor.view().bytes(), object_of(outputs[i]).view().data);
  }
  return {};
}

}  // namespace
}  // namespace shoal::c

using namespace shoal::c;

shoal_status* shoal_program_create(const char* symbol_json, const void* params, std::size_t params_size,
                                   const shoal_program_options* options, shoal_program** program) {
  SHOAL_C_GIVES(program);
  SHOAL_C_NEEDS(symbol_json);
  return call([&]() -> shoal::Status {
    if (!params && params_size > 0) return shoal::invalid_argument("params is NULL, and params_size is {}", params_size);
    SHOAL_ASSIGN_OR_RETURN(ProgramOptions given, program_options_of(options));
    const std::string_view symbol = symbol_json;
    SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> variables,
                           variables_in({"symbol_json", std::as_bytes(std::span(symbol)), nullptr}));
    const auto parameters =
        params_size > 0 ? std::span(static_cast<const std::byte*>(params), params_size) : std::as_bytes(std::span(kNoParameters));
    SHOAL_ASSIGN_OR_RETURN(shoal::Engine engine, shoal::Engine::load_bytes(given.name, symbol, parameters, given.engine));
    return give_program(std::move(engine), given.flags, variables, program);
  });
}

shoal_status* shoal_program_load(const char* path, const shoal_program_options* options, shoal_program** program) {
  SHOAL_C_GIVES(program);
  SHOAL_C_NEEDS(path);
  return call([&]() -> shoal::Status {
    SHOAL_ASSIGN_OR_RETURN(ProgramOptions given, program_options_of(options));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> variables, variables_at(path));
    SHOAL_ASSIGN_OR_RETURN(shoal::Engine engine, shoal::Engine::load(path, given.engine));
    return give_program(std::move(engine), given.flags, variables, program);
  });
}

shoal_status* shoal_program_describe(const shoal_program* program, shoal_model_info** info) {
  SHOAL_C_GIVES(info);
  SHOAL_C_NEEDS(program);
  return call([&] { return give(object_of(program).info, info); });
}

shoal_status* shoal_program_invoke(shoal_program* program, shoal_tensor* const* inputs, std::size_t input_count,
                                   shoal_tensor** outputs, std::size_t output_count) {
  SHOAL_C_NEEDS(program);
  return call([&] { return invoke(object_of(program), inputs, input_count, outputs, output_count); });
}

const shoal_client* shoal_program_client(const shoal_program* program) {
  return program ? handle_of<shoal_client>(&object_of(program).client) : nullptr;
}

void shoal_program_free(shoal_program* program) { free_handle(program); }
