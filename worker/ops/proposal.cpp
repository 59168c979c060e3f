// Proposal.
#include "worker/ops/proposal.hpp"

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/proposal_functions.hpp"

namespace shoal::worker {
namespace {

std::int64_t anchor_count(const ProposalAttributes& proposal) {
  return static_cast<std::int64_t>(proposal.scales.size() * proposal.ratios.size());
}

constexpr std::int64_t kMostAnchors = 4096;  // of a cell; networks have some 10

Status infer_proposal(const Node& node, SourceValues src, ResultValues dst) {
  const auto& proposal = node.attributes.get<ProposalAttributes>();
  const TypedValue& scores = src[0];
  SHOAL_RETURN_IF_ERROR(check_float(node, scores));
  SHOAL_RETURN_IF_ERROR(check_same_dtype(node, src));
  SHOAL_RETURN_IF_ERROR(check_rank(node, scores, 4, 4));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "feature_stride", {proposal.stride}, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "rpn_post_nms_top_n", {proposal.count}, 1));
  const SymbolicShape& map = scores.shape;
  const std::int64_t anchors = anchor_count(proposal);
  if (anchors > kMostAnchors) {
    return invalid_argument("{}: {} scales times {} ratios are more than {} anchors", describe(node), proposal.scales.size(),
                            proposal.ratios.size(), kMostAnchors);
  }
  if (proposal.one_picture && known_unequal(map[0], 1)) {
    return invalid_argument("{}: '{}' has shape {}; only a batch of 1 is possible", describe(node), scores.name, map.to_string());
  }
  SHOAL_RETURN_IF_ERROR(check_shape(node, "cls_prob", scores, SymbolicShape{map[0], 2 * anchors, map[2], map[3]}));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "bbox_pred", src[1], SymbolicShape{map[0], 4 * anchors, map[2], map[3]}));
  SHOAL_RETURN_IF_ERROR(check_shape(node, "im_info", src[2], SymbolicShape{map[0], 3}));
  set_result(dst[0], scores.dtype, SymbolicShape{map[0] * proposal.count, 5});
  set_result(dst[1], scores.dtype, SymbolicShape{map[0] * proposal.count, 1});
  return {};
}

// The map must have the cells that a picture is said to have.
Status compute_proposal(const Node& node, Sources src, Results dst) {
  SHOAL_RETURN_IF_ERROR(check_pictures(node, src));
  return run_undivided<Proposal, Floats>(node, src, dst);
}

}  // namespace

Status check_pictures(const Node& node, Sources src) {
  const Shape& map = src[0].shape;
  return dispatch<Floats>(node, src[0].dtype, [&]<typename T>() {
    for (std::int64_t n = 0; n < map[0]; ++n) {
      const ProposalPicture<Compute<T>> picture(node.attributes.get<ProposalAttributes>(), elements<T>(src[2]) + 3 * n);
      if (picture.rows <= map[2] && picture.columns <= map[3]) continue;
      return invalid_argument("{}: im_info says that picture {} has {} times {} cells; the map has only {} times {}",
                              describe(node), n, picture.rows, picture.columns, map[2], map[3]);
    }
    return Status();
  });
}

namespace ops {

const Operator kProposal({
    .name = "Proposal",
    .inputs = 3,
    .outputs = 2,
    .attributes = &kSchema<ProposalAttributes>,
    .infer = infer_proposal,
    .constant_types = ConstantTypes::kAsData,
    .facts = layer_facts(rows_mixed, work_of_pairs, Accuracy::kLost),  // a row names its picture
    .oracle = compute_proposal,
    .formula =
        "scores (N, 2 A, H, W) of A anchors at each cell, the second half for objects, offsets (N, 4 A, H, W), pictures (N, 3) "
        "[height, width, scale]: (N count, 5) regions [picture, left, top, right, bottom] and (N count, 1) scores, the best "
        "first, none suppressed by a better one. If there are too few, they come again from the first on. Cells beyond the "
        "picture and regions that are too small have the score -1",
    .source = "MXNet 1.9.1 src/operator/contrib/proposal.cc, multi_proposal.cc",
});

}  // namespace ops

}  // namespace shoal::worker
