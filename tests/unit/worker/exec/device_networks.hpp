// Networks that a device must answer like the reference device: each has something that can be fused, laid out otherwise or
// written in place.
#pragma once

#include <climits>
#include <ostream>
#include <span>

#include "tests/unit/worker/exec/graph_builder.hpp"

namespace shoal::worker::testing {

struct NetworkCase {
  const char* name;
  void (*build)(GraphBuilder&);
  Shape shape = {1, 32, 9, 9};
  int steps = INT_MAX;  ///< that a program may have at most
};

inline void PrintTo(const NetworkCase& network, std::ostream* out) { *out << network.name; }

std::span<const NetworkCase> device_networks();

}  // namespace shoal::worker::testing
