// Reductions: sum, mean, max and similar operators.
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/reduce.hpp"

namespace shoal::worker {
namespace {

auto reduce(ReduceKind kind) {
  return [=](MxnetLowering& lowering) {
    ReduceAttributes reduce{.kind = kind};
    reduce.axes = lowering.attributes.tuple("axis", Dims{});
    reduce.keepdims = lowering.attributes.flag("keepdims", false);
    reduce.exclude = lowering.attributes.flag("exclude", false);
    return lowering.add(ops::kReduce, reduce);
  };
}

}  // namespace

std::vector<MxnetOperator> reduction_operators() {
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 1, 1, -1, reduce(ReduceKind::kSum)}, {"sum", "sum_axis"});
  all.push_back({"mean", 1, 1, -1, reduce(ReduceKind::kMean)});
  all.push_back({"prod", 1, 1, -1, reduce(ReduceKind::kProd)});
  all.push_back({"nansum", 1, 1, -1, reduce(ReduceKind::kNanSum)});
  all.push_back({"nanprod", 1, 1, -1, reduce(ReduceKind::kNanProd)});
  add_aliases(all, {"", 1, 1, -1, reduce(ReduceKind::kMax)}, {"max", "max_axis"});
  add_aliases(all, {"", 1, 1, -1, reduce(ReduceKind::kMin)}, {"min", "min_axis"});
  return all;
}

}  // namespace shoal::worker
