#include "worker/import/mxnet/mxnet_refusals.hpp"

#include <algorithm>
#include <iterator>

namespace shoal::worker {
namespace {

using Text = std::string_view;

constexpr Text kRandom = "it draws random numbers";
constexpr Text kTraining = "it is for training";
constexpr Text kLoss = "it is for training; 'outputs' in model.toml can name the value before it";
constexpr Text kWrites = "it writes into its input";
constexpr Text kArrays = "MXNet runs it on arrays only, not in graphs";
constexpr Text kMemory = "it asks where tensors lie in memory";
constexpr Text kComplex = "its results may be complex numbers";
constexpr Text kAnySize = "the size of its result depends on data and has no limit";
constexpr Text kPictures = "it reads and decodes pictures, which a client does";
constexpr Text kPython = "it calls Python";
constexpr Text kCustom = "it calls Python; write it with MXNet's own operators, or add an operator to Shoal (docs/how-to-add.md)";
constexpr Text kInsert = "MXNet's executor does not run it with a number, and gives it no known size";
constexpr Text kNotBuilt = "it is not built yet";
constexpr Text kOnlyGpu = "MXNet has it on GPUs only, and it is not built yet";
constexpr Text kOneDnn =
    "oneDNN fused layers into it; export the model without get_backend_symbol() and optimize_for(), or serve its float32 "
    "checkpoint";
constexpr Text kBackend =
    "an MXNet backend fused nodes into it; export the model without get_backend_symbol() and optimize_for()";
constexpr Text kGpuFusion = "MXNet fused nodes into it while it ran on a GPU; export the model with MXNET_USE_FUSION=0";
constexpr Text kNoGraph = "it stands for a graph that the file does not hold";
constexpr Text kInt8Rnn =
    "RNN layers do not run in int8; quantize the model with excluded_op_names=['RNN'], or list these layers in "
    "excluded_sym_names";
constexpr Text kCalibration = "it finds ranges for a quantization, before the quantized model is written";
constexpr Text kGraphs = "it prepares graphs for DGL, which a client does";
constexpr Text kStorage = "it asks how a sparse tensor is stored";

/// `pattern`: a name, or the beginning or the end of names, with a * for the rest.
struct Refused {
  Text pattern, why;
};
/// The first row that fits counts.
constexpr Refused kRefused[] = {
    {"_random_pdf_*", kNotBuilt},
    {"random_pdf_*", kNotBuilt},
    {"_random_*", kRandom},
    {"random_*", kRandom},
    {"_sample_*", kRandom},
    {"sample_*", kRandom},
    {"_shuffle", kRandom},
    {"shuffle", kRandom},
    {"normal", kRandom},
    {"uniform", kRandom},
    {"_image_random_*", kRandom},
    {"_npx__image_random_*", kRandom},
    {"_npi_bernoulli", kRandom},
    {"_npi_choice", kRandom},
    {"_npi_exponential", kRandom},
    {"_npi_gamma", kRandom},
    {"_npi_gumbel", kRandom},
    {"_npi_logistic", kRandom},
    {"_npi_multinomial", kRandom},
    {"_npi_normal", kRandom},
    {"_npi_normal_n", kRandom},
    {"_npi_pareto", kRandom},
    {"_npi_powerd", kRandom},
    {"_npi_random_randint", kRandom},
    {"_npi_rayleigh", kRandom},
    {"_npi_shuffle", kRandom},
    {"_npi_uniform", kRandom},
    {"_npi_uniform_n", kRandom},
    {"_npi_weibull", kRandom},
    {"CTCLoss", kLoss},
    {"ctc_loss", kLoss},
    {"_contrib_CTCLoss", kLoss},
    {"_contrib_ctc_loss", kLoss},
    {"_npx_ctc_loss", kLoss},
    {"softmax_cross_entropy", kLoss},
    {"_contrib_hawkesll", kLoss},
    {"_contrib_MultiBoxTarget", kLoss},
    {"_npx_multibox_target", kLoss},
    {"*_update", kTraining},
    {"lamb_update_*", kTraining},
    {"mp_lamb_update_*", kTraining},
    {"multi_lars", kTraining},
    {"multi_sum_sq", kTraining},
    {"all_finite", kTraining},
    {"multi_all_finite", kTraining},
    {"reset_arrays", kTraining},
    {"_backward_*", kTraining},
    {"_contrib_backward_*", kTraining},
    {"_npi_backward_*", kTraining},
    {"*_backward", kTraining},
    {"_NoGradient", kTraining},
    {"_scatter_elemwise_div", kTraining},
    {"_scatter_minus_scalar", kTraining},
    {"_scatter_plus_scalar", kTraining},
    {"_scatter_set_nd", kWrites},
    {"_npi_boolean_mask_assign_*", kWrites},
    {"_npi_copyto", kWrites},
    {"_npi_scatter_set_nd", kWrites},
    {"_copyto", kArrays},
    {"_onehot_encode", kArrays},
    {"_set_value", kArrays},
    {"fill_element_0index", kArrays},
    {"_npi_share_memory", kMemory},
    {"_npi_eig", kComplex},
    {"_npi_eigvals", kComplex},
    {"_npi_bincount", kAnySize},
    {"_cv*", kPictures},
    {"_imdecode", kPictures},
    {"_npi_cv*", kPictures},
    {"Custom", kCustom},
    {"_npi_Custom", kCustom},
    {"_CustomFunction", kPython},
    {"_NDArray", kPython},
    {"_Native", kPython},
    {"_npi_insert_*", kInsert},
    {"_CachedOp*", kNoGraph},
    {"_FusedOp*", kGpuFusion},
    {"_sg_mkldnn_*", kOneDnn},
    {"_sg_onednn_*", kOneDnn},
    {"_sg_*", kBackend},
    {"_TensorRT", kBackend},
    {"_contrib_quantize_asym", kInt8Rnn},
    {"_contrib_quantized_rnn", kInt8Rnn},
    {"_contrib_calibrate_entropy", kCalibration},
    {"_contrib_dgl_*", kGraphs},
    {"_contrib_edge_id", kGraphs},
    {"_contrib_getnnz", kStorage},
    {"_contrib_count_sketch", kOnlyGpu},
    {"_contrib_fft", kOnlyGpu},
    {"_contrib_ifft", kOnlyGpu},
    {"BilinearSampler", kNotBuilt},
    {"Correlation", kNotBuilt},
    {"GridGenerator", kNotBuilt},
    {"SpatialTransformer", kNotBuilt},
    {"_contrib_DeformableConvolution", kNotBuilt},
    {"_contrib_DeformablePSROIPooling", kNotBuilt},
    {"_contrib_ModulatedDeformableConvolution", kNotBuilt},
    {"_npx_deformable_convolution", kNotBuilt},
    {"_npx_modulated_deformable_convolution", kNotBuilt},
    {"_contrib_PSROIPooling", kNotBuilt},
    {"_contrib_RROIAlign", kNotBuilt},
    {"_contrib_allclose", kNotBuilt},
    {"_linalg_potrf", kNotBuilt},
    {"_linalg_potri", kNotBuilt},
    {"linalg_potrf", kNotBuilt},
    {"linalg_potri", kNotBuilt},
    {"col2im", kNotBuilt},
    {"im2col", kNotBuilt},
};

bool fits(Text pattern, Text name) {
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return name == pattern;
}

}  // namespace

std::string_view why_refused(std::string_view mxnet_name) {
  const auto* const found = std::ranges::find_if(kRefused, [&](const Refused& row) { return fits(row.pattern, mxnet_name); });
  return found == std::end(kRefused) ? std::string_view() : found->why;
}

}  // namespace shoal::worker
