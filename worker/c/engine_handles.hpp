// The handles of the C interface that libshoal-engine adds to those of shm/c.
#pragma once

#include <string>
#include <vector>

#include "shm/c/handles.hpp"
#include "shoal/engine.hpp"
#include "shoal/shoal_engine.h"

namespace shoal::c {

/// An engine, and its client, which is borrowed from it.
struct EngineHandle {
  explicit EngineHandle(Engine its) : engine(std::move(its)), client(engine.client()) {}
  Engine engine;
  Client client;
};

/// An engine whose inputs have places.
struct ProgramHandle : EngineHandle {
  using EngineHandle::EngineHandle;
  std::vector<std::string> inputs;        ///< by place
  std::shared_ptr<const ModelInfo> info;  ///< its inputs are those, in this order
};

// clang-format off
template <> struct Of<shoal_engine> { using Object = EngineHandle; };
template <> struct Of<shoal_program> { using Object = ProgramHandle; };
// clang-format on

}  // namespace shoal::c
