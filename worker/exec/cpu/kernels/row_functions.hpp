// Functions of one float32 number over rows that were just computed.
#pragma once

#include <cstdint>

#include "worker/exec/cpu/kernels/loop_step.hpp"
#include "worker/passes/element_functions.hpp"

namespace shoal::worker::cpu {

/// row[i] = f(row[i]). NaN stays NaN.
using RowFunction = void (*)(float* row, std::int64_t count, const ElementFunction& function);
/// Null: there is none of that kind.
RowFunction row_function(ElementFunction::Kind kind);
/// Operands: src, dst, which may be src.
Loop row_function_loop(std::int64_t count, const ElementFunction& function);

}  // namespace shoal::worker::cpu
