#include "supervisor/repository/model_text.hpp"

#include "shm/wire/control.hpp"
#include "tests/support/says.hpp"

namespace shoal::supervisor {
namespace {

using test::says;

TEST(LoadText, FitsIntoAControlMessageOrIsRefused) {
  ServedModel model{.name = "net", .path = "/models/net", .files = {}, .config = {}, .labels = {}};
  model.config.shapes.assign(2000, std::vector<TensorSpec>{{"data", DType::kFloat32, Shape{1, 3, 224, 224}}});
  const Status refused = load_text(model).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(refused.message(), {"'net'", "/models/net", "at most 61440", "`shapes`"}));
  model.config.shapes.resize(500);
  EXPECT_LE(load_text(model).value().size(), wire::kMaxControlText);
}

}  // namespace
}  // namespace shoal::supervisor
