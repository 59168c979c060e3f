// The handles of the C interface that libshoal adds to those of shm/c.
#pragma once

#include "shm/c/handles.hpp"
#include "shoal/pool.hpp"
#include "shoal/session.hpp"
#include "shoal/shoal.h"

namespace shoal::c {

/// A pool, and its client, which is borrowed from it.
struct PoolHandle {
  explicit PoolHandle(Pool its) : pool(std::move(its)), client(pool.client()) {}
  Pool pool;
  Client client;
};

// clang-format off
template <> struct Of<shoal_pool> { using Object = PoolHandle; };
template <> struct Of<shoal_session> { using Object = Session; };
template <> struct Of<shoal_names> { using Object = std::vector<std::string>; };
template <> struct Of<shoal_change> { using Object = ModelChange; };
// clang-format on

}  // namespace shoal::c
