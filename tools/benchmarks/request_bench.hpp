// Requests without computing, one at a time: what tools/bench python compares with Python's.
#pragma once

#include "shoal/result.hpp"

namespace shoal::bench {

/// Executes the lines of standard input until its end, and answers each with the median of N requests in microseconds:
///   engine N   Engine::predict() of builtin:identity
///   pool N     Pool::predict() of the model "echo" of the daemon in $SHOAL_DIR
Status serve_requests();

}  // namespace shoal::bench
