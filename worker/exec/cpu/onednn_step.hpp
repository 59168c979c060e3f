// A Step that executes one oneDNN primitive.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/exec/cpu/onednn.hpp"
#include "worker/exec/plan.hpp"

namespace shoal::worker::cpu {

struct Argument {
  int kind = 0;  ///< DNNL_ARG_*
  Desc desc;
  BufferId buffer = kNoBuffer;
};

std::unique_ptr<Step> make_onednn_step(std::string name, dnnl::primitive primitive, std::vector<Argument> arguments);

}  // namespace shoal::worker::cpu
