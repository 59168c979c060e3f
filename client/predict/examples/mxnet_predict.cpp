// A predict program as people wrote them for MXNet's C predict API, without pictures: reads a symbol, its parameters and a raw
// float32 tensor, and prints the best classes. Nothing here is Shoal's: it compiles with MXNet's header, too, and only the
// linker's -lmxnet has become -lshoal_predict.
//
//   example_mxnet_predict net-symbol.json net-0000.params input.f32 1,3,224,224
//   SHOAL_PREDICT_MODEL=net example_mxnet_predict ...        # the same, by the daemon that serves the model as "net"
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <mxnet/c_predict_api.h>

static std::vector<char> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path);
    std::exit(1);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

static void check(int result) {
  if (result == 0) return;
  std::fprintf(stderr, "%s\n", MXGetLastError());
  std::exit(1);
}

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s SYMBOL PARAMS INPUT SHAPE\n", argv[0]);
    return 2;
  }
  std::vector<char> symbol = read_file(argv[1]);
  symbol.push_back('\0');
  const std::vector<char> params = read_file(argv[2]);
  const std::vector<char> bytes = read_file(argv[3]);
  std::vector<mx_uint> shape;
  std::istringstream sizes(argv[4]);
  for (std::string size; std::getline(sizes, size, ',');) {
    char* end = nullptr;
    const long long number = std::strtoll(size.c_str(), &end, 10);
    shape.push_back(static_cast<mx_uint>(number));
    if (size.empty() || *end != '\0' || number < 0 || number > UINT32_MAX) {
      std::fprintf(stderr, "SHAPE is '%s'; it must be numbers with commas, such as 1,3,224,224\n", argv[4]);
      return 2;
    }
  }

  const char* keys[] = {"data"};
  const mx_uint indptr[] = {0, static_cast<mx_uint>(shape.size())};
  PredictorHandle predictor = nullptr;
  check(MXPredCreate(symbol.data(), params.data(), static_cast<int>(params.size()), /*cpu*/ 1, 0, 1, keys, indptr, shape.data(),
                     &predictor));

  const auto* values = reinterpret_cast<const mx_float*>(bytes.data());
  check(MXPredSetInput(predictor, "data", values, static_cast<mx_uint>(bytes.size() / sizeof(mx_float))));
  check(MXPredForward(predictor));

  mx_uint* out_shape = nullptr;
  mx_uint out_ndim = 0;
  check(MXPredGetOutputShape(predictor, 0, &out_shape, &out_ndim));
  std::vector<mx_float> scores(std::accumulate(out_shape, out_shape + out_ndim, std::size_t{1}, std::multiplies<std::size_t>()));
  check(MXPredGetOutput(predictor, 0, scores.data(), static_cast<mx_uint>(scores.size())));
  check(MXPredFree(predictor));

  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 3); ++i) std::printf("%zu %.4f\n", order[i], scores[order[i]]);
  return 0;
}
