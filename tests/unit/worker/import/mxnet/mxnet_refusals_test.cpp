#include "worker/import/mxnet/mxnet_refusals.hpp"

#include <gtest/gtest.h>

#include <string_view>

#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {
namespace {

/// Operators that MXNet 1.9.1 has and Shoal does not, and a part of the reason.
constexpr struct {
  const char *name, *why;
} kReasons[] = {
    {"_npi_uniform", "it draws random numbers"},
    {"_npi_bernoulli", "it draws random numbers"},
    {"_npx__image_random_hue", "it draws random numbers"},
    {"_image_random_flip_left_right", "it draws random numbers"},
    {"_random_normal", "it draws random numbers"},
    {"random_uniform", "it draws random numbers"},
    {"_random_gamma_like", "it draws random numbers"},
    {"_sample_uniform", "it draws random numbers"},
    {"sample_multinomial", "it draws random numbers"},
    {"_shuffle", "it draws random numbers"},
    {"normal", "it draws random numbers"},
    {"_random_pdf_normal", "it is not built yet"},  // computes a density
    {"CTCLoss", "'outputs' in model.toml"},
    {"_contrib_ctc_loss", "'outputs' in model.toml"},
    {"softmax_cross_entropy", "'outputs' in model.toml"},
    {"_contrib_MultiBoxTarget", "'outputs' in model.toml"},
    {"_npx_multibox_target", "'outputs' in model.toml"},
    {"sgd_update", "it is for training"},
    {"_sparse_adam_update", "it is for training"},
    {"multi_mp_sgd_mom_update", "it is for training"},
    {"mp_lamb_update_phase2", "it is for training"},
    {"_backward_Convolution", "it is for training"},
    {"_split_v2_backward", "it is for training"},
    {"_scatter_plus_scalar", "it is for training"},
    {"_scatter_set_nd", "it writes into its input"},
    {"_npi_copyto", "it writes into its input"},
    {"_npi_boolean_mask_assign_scalar", "it writes into its input"},
    {"_copyto", "arrays only"},
    {"_npi_eig", "complex"},
    {"_npi_bincount", "no limit"},
    {"_npi_insert_slice", "no known size"},
    {"_cvimdecode", "pictures"},
    {"_npi_cvimread", "pictures"},
    {"Custom", "it calls Python; write it with MXNet's own operators"},
    {"_npi_Custom", "it calls Python"},
    {"_NDArray", "it calls Python"},
    {"_CachedOp", "a graph that the file does not hold"},
    {"_FusedOp", "MXNET_USE_FUSION=0"},
    {"_sg_mkldnn_conv", "oneDNN fused layers into it"},
    {"_sg_mkldnn_selfatt_qk", "oneDNN fused layers into it"},
    {"_contrib_quantize_asym", "excluded_op_names=['RNN']"},
    {"_contrib_quantized_rnn", "excluded_sym_names"},
    {"_contrib_calibrate_entropy", "before the quantized model is written"},
    {"_contrib_dgl_adjacency", "DGL"},
    {"_contrib_fft", "GPUs only"},
    {"_contrib_count_sketch", "GPUs only"},
    {"Correlation", "it is not built yet"},
    {"SpatialTransformer", "it is not built yet"},
    {"BilinearSampler", "it is not built yet"},
    {"GridGenerator", "it is not built yet"},
    {"_contrib_DeformableConvolution", "it is not built yet"},
    {"_contrib_ModulatedDeformableConvolution", "it is not built yet"},
    {"_contrib_PSROIPooling", "it is not built yet"},
    {"_contrib_RROIAlign", "it is not built yet"},
    {"_linalg_potrf", "it is not built yet"},
    {"linalg_potri", "it is not built yet"},
    {"im2col", "it is not built yet"},
};

TEST(MxnetRefusals, SayWhyAndWhatToDo) {
  for (const auto& [name, why] : kReasons) {
    EXPECT_NE(why_refused(name).find(why), std::string_view::npos) << name << ": " << why_refused(name);
    EXPECT_EQ(find_mxnet_operator(name), nullptr) << name;
  }
}

TEST(MxnetRefusals, SayNothingOfOperatorsThatShoalHasOrThatAreNotMxnets) {
  for (const MxnetOperator* const op : all_mxnet_operators()) EXPECT_EQ(why_refused(op->name), "") << op->name;
  for (const char* const name : {"", "*", "FancyConvolution", "Custom2", "my_sgd_update2"})
    EXPECT_EQ(why_refused(name), "") << name;
}

}  // namespace
}  // namespace shoal::worker
