#include "worker/import/mxnet/mxnet_refusals.hpp"

#include <algorithm>
#include <iterator>

namespace shoal::worker {
namespace {

constexpr std::string_view kRandom = "it draws random numbers", kTraining = "it is for training",
                           kWrites = "it writes into its input", kComplex = "its results may be complex numbers",
                           kAnySize = "the size of its result depends on data and has no limit",
                           kPictures = "it reads and decodes pictures, which a client does", kPython = "it calls Python",
                           kInsert = "MXNet's executor does not run it with a number, and gives it no known size";

struct Refused {
  std::string_view name, why;
};
constexpr Refused kRefused[] = {
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
    {"_npx__image_random_brightness", kRandom},
    {"_npx__image_random_color_jitter", kRandom},
    {"_npx__image_random_contrast", kRandom},
    {"_npx__image_random_flip_left_right", kRandom},
    {"_npx__image_random_flip_top_bottom", kRandom},
    {"_npx__image_random_hue", kRandom},
    {"_npx__image_random_lighting", kRandom},
    {"_npx__image_random_saturation", kRandom},
    {"_npx_multibox_target", kTraining},
    {"_npi_backward_ediff1d", kTraining},
    {"_npi_backward_nan_to_num", kTraining},
    {"_npi_backward_polyval", kTraining},
    {"_npi_hsplit_backward", kTraining},
    {"_npi_boolean_mask_assign_scalar", kWrites},
    {"_npi_boolean_mask_assign_tensor", kWrites},
    {"_npi_copyto", kWrites},
    {"_npi_scatter_set_nd", kWrites},
    {"_npi_share_memory", "it asks where tensors lie in memory"},
    {"_npi_eig", kComplex},
    {"_npi_eigvals", kComplex},
    {"_npi_bincount", kAnySize},
    {"_npi_cvimdecode", kPictures},
    {"_npi_cvimread", kPictures},
    {"_npi_cvimresize", kPictures},
    {"_npi_Custom", kPython},
    {"_npi_insert_scalar", kInsert},
    {"_npi_insert_slice", kInsert},
    {"_npi_insert_tensor", kInsert},
};

}  // namespace

std::string_view why_refused(std::string_view mxnet_name) {
  const auto* const found = std::ranges::find(kRefused, mxnet_name, &Refused::name);
  return found == std::end(kRefused) ? std::string_view() : found->why;
}

}  // namespace shoal::worker
