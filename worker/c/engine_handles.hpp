// The handles of the C interface that libshoal-engine adds to those of shm/c.
#pragma once

#include <memory>
#include <utility>

#include "shm/c/handles.hpp"
#include "shoal/engine.hpp"
#include "shoal/shoal_engine.h"

namespace shoal::c {

/// An engine, and its client, which is borrowed from it. A program is one, too.
struct EngineHandle {
  EngineHandle(Engine its, ModelInfo its_info)
      : engine(std::move(its)), client(engine.client()), info(std::make_shared<const ModelInfo>(std::move(its_info))) {}
  Engine engine;
  Client client;
  std::shared_ptr<const ModelInfo> info;  ///< of a program: its inputs are in the order of shoal_program_invoke()
};

// clang-format off
template <> struct Of<shoal_engine> { using Object = EngineHandle; };
template <> struct Of<shoal_program> { using Object = EngineHandle; };
// clang-format on

}  // namespace shoal::c
