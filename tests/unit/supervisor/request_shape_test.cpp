#include "supervisor/plane/request_shape.hpp"

#include <gtest/gtest.h>

namespace shoal::supervisor {
namespace {

wire::Request request_of(std::vector<std::vector<std::int64_t>> inputs, DType dtype = DType::kFloat32) {
  wire::Request request;
  for (const auto& dims : inputs) {
    wire::WireTensor& input = request.inputs.emplace_back();
    input.rank = static_cast<std::uint8_t>(dims.size());
    input.dtype = static_cast<std::uint8_t>(dtype);
    std::ranges::copy(dims, input.dims);
    input.size_bytes = static_cast<std::uint64_t>(Shape(dims).element_count()) * dtype_size_bytes(dtype);
  }
  return request;
}

TEST(RequestShape, LeavesOutTheFirstDimensionWhereAllInputsAgreeOnIt) {
  const RequestShape one = shape_of(request_of({{1, 3, 224, 224}, {1, 5}})),
                     four = shape_of(request_of({{4, 3, 224, 224}, {4, 5}}));
  EXPECT_TRUE(one.joinable);
  EXPECT_EQ(one.hash, four.hash);
  EXPECT_EQ(one.rows, 1u);
  EXPECT_EQ(four.rows, 4u);
}

TEST(RequestShape, TellsOtherTypesAndDimensionsApart) {
  const RequestShape shape = shape_of(request_of({{1, 3, 8}}));
  for (const auto& other : {request_of({{1, 8, 3}}), request_of({{1, 3}}), request_of({{1, 3, 8}, {1}}),
                            request_of({{1, 3, 8, 1}}), request_of({{1, 3, 8}}, DType::kInt32)})
    EXPECT_NE(shape_of(other).hash, shape.hash);
}

TEST(RequestShape, RequestsWhoseInputsDisagreeRunAlone) {
  for (const auto& request :
       {request_of({{2, 3}, {1, 3}}), request_of({{}}), request_of({}), request_of({{0, 3}}), request_of({{1 << 30, 0}})}) {
    EXPECT_FALSE(shape_of(request).joinable);
    EXPECT_EQ(shape_of(request).rows, 1u);
  }
  EXPECT_NE(shape_of(request_of({{2, 3}, {1, 3}})).hash, shape_of(request_of({{1, 3}, {2, 3}})).hash);
}

}  // namespace
}  // namespace shoal::supervisor
