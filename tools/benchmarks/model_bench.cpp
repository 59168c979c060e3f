#include "tools/benchmarks/model_bench.hpp"

#include <chrono>
#include <iostream>

#include "shm/base/errors.hpp"
#include "shm/tensor/npy.hpp"
#include "tools/benchmarks/client.hpp"
#include "tools/benchmarks/runnable_model.hpp"

namespace shoal::bench {

Status serve_model(const ModelBenchOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(RunnableModel model, RunnableModel::load(options));
  for (std::string line; std::getline(std::cin, line);) {
    const std::string command = line.substr(0, line.find(' ')),
                      argument = line.size() > command.size() ? line.substr(command.size() + 1) : "";
    if (command == "input") {
      SHOAL_ASSIGN_OR_RETURN(Tensor input, read_npy(argument));
      SHOAL_RETURN_IF_ERROR(model.set_input(0, std::move(input)));
      std::cout << "ok" << std::endl;
    } else if (command == "inputs") {
      SHOAL_RETURN_IF_ERROR(model.read_inputs(argument));
      std::cout << "ok" << std::endl;
    } else if (command == "run") {
      for (int left = argument.empty() ? 1 : std::stoi(argument); left > 0; --left) {
        const auto started = std::chrono::steady_clock::now();
        SHOAL_RETURN_IF_ERROR(model.run());
        std::cout << std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count()
                  << (left > 1 ? " " : "");
      }
      std::cout << std::endl;
    } else if (command == "output") {
      SHOAL_RETURN_IF_ERROR(write_npy(argument, model.outputs().front().view()));
      std::cout << "ok" << std::endl;
    } else if (command == "outputs") {
      SHOAL_RETURN_IF_ERROR(model.write_outputs(argument));
      std::cout << model.outputs().size() << std::endl;
    } else if (command == "threads") {
      std::cout << thread_count() << std::endl;
    } else if (command == "tuning") {
      std::cout << to_text(model.model().tuning()) << std::endl;
    } else {
      return invalid_argument("'{}' is not a command", line);
    }
  }
  return {};
}

}  // namespace shoal::bench
