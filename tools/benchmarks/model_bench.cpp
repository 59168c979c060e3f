#include "tools/benchmarks/model_bench.hpp"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "shm/base/errors.hpp"
#include "shm/model/model_config.hpp"
#include "shm/tensor/npy.hpp"
#include "worker/exec/model.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"

namespace shoal::bench {
namespace {

Result<TensorSpec> parse_shape(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) return invalid_argument("--shape {}: want name=1,3,224,224", text);
  std::vector<std::int64_t> dims;
  std::istringstream numbers(text.substr(equals + 1));
  for (std::string number; std::getline(numbers, number, ',');) dims.push_back(std::stoll(number));
  if (dims.size() > kMaxRank) return invalid_argument("--shape {}: more than {} dimensions", text, kMaxRank);
  return TensorSpec{text.substr(0, equals), DType::kFloat32, Shape(dims)};
}

std::size_t thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

}  // namespace

Status serve_model(const ModelBenchOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const TensorSpec input_spec, parse_shape(options.shape));
  SHOAL_ASSIGN_OR_RETURN(const ModelFiles files, find_model(options.path));
  SHOAL_ASSIGN_OR_RETURN(auto imported, worker::import_mxnet(files.symbol_file, files.params_file));
  SHOAL_ASSIGN_OR_RETURN(const auto model, worker::Model::load(std::move(imported.graph), {.device = options.device,
                                                                                           .threads = options.threads,
                                                                                           .input_sets = {{input_spec}}}));
  model->enter_thread();
  SHOAL_ASSIGN_OR_RETURN(const auto program, model->program(std::span(&input_spec, 1)));
  SHOAL_ASSIGN_OR_RETURN(Tensor input, Tensor::create(input_spec.dtype, input_spec.shape));
  std::vector<Tensor> outputs;
  std::vector<TensorView> src{input.view()}, dst;
  for (const TensorSpec& spec : program->outputs()) {
    SHOAL_ASSIGN_OR_RETURN(Tensor output, Tensor::create(spec.dtype, spec.shape));
    dst.push_back(output.view());
    outputs.push_back(std::move(output));
  }
  worker::Context context;
  for (std::string line; std::getline(std::cin, line);) {
    const std::string command = line.substr(0, line.find(' ')),
                      file = line.size() > command.size() ? line.substr(command.size() + 1) : "";
    if (command == "input") {
      SHOAL_ASSIGN_OR_RETURN(input, read_npy(file));
      src[0] = input.view();
      std::cout << "ok" << std::endl;
    } else if (command == "run") {
      const auto started = std::chrono::steady_clock::now();
      SHOAL_RETURN_IF_ERROR(program->run(context, src, dst));
      std::cout << std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count() << std::endl;
    } else if (command == "output") {
      SHOAL_RETURN_IF_ERROR(write_npy(file, outputs[0].view()));
      std::cout << "ok" << std::endl;
    } else if (command == "threads") {
      std::cout << thread_count() << std::endl;
    } else {
      return invalid_argument("'{}' is no command", line);
    }
  }
  return {};
}

}  // namespace shoal::bench
