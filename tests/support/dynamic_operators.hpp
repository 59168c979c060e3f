// Operators whose results have sizes that depend on data. Only tests have them.
#pragma once

namespace shoal::test {

/// Adds them; MXNet's files may use them by the same names:
///   _dynamic_nonzero  data of any rank r -> int64 (n, r): the positions of its n elements that are not 0, in order
///   _dynamic_nms      data (n, 5), rows of score, x1, y1, x2, y2 -> (k, 5): the rows that no row of a higher score overlaps by
///                     more than the attribute `scalar` (intersection over union), the highest score first
void register_dynamic_operators();

}  // namespace shoal::test
