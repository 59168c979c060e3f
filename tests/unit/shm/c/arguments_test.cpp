#include "shm/c/arguments.hpp"

#include <gtest/gtest.h>

#include "tests/support/says.hpp"

namespace shoal::c {
namespace {

using test::says;

/// A struct as release 0.3 had it, and as this library has it.
struct Older {
  std::size_t struct_size;
  std::int64_t first;
};
struct Newer {
  std::size_t struct_size;
  std::int64_t first, second;
};
constexpr std::string_view kMacro = "NEWER_INIT";

Result<Newer> read(const void* given) { return read_struct(static_cast<const Newer*>(given), kMacro, sizeof(Older)); }

TEST(CStructs, OfAnOlderProgramAreShorter) {
  const Older given{sizeof(Older), 7};
  const Newer value = read(&given).value();
  EXPECT_EQ(value.first, 7);
  EXPECT_EQ(value.second, 0);
  EXPECT_EQ(read(nullptr).value().first, 0);
}

TEST(CStructs, OfANewerProgramMaySetOnlyWhatIsKnown) {
  struct {
    Newer known;
    std::int64_t third;
  } given{{sizeof given, 7, 8}, 0};
  EXPECT_EQ(read(&given).value().second, 8);
  given.third = 1;
  EXPECT_TRUE(says(read(&given).status().message(), {"NEWER_INIT", "older than the program"}));
}

TEST(CStructs, WithoutASizeAreRefused) {
  Newer given{0, 7, 8};
  for (const std::size_t size : {std::size_t{0}, sizeof(Older) - 1, std::size_t{1} << 20, SIZE_MAX}) {
    given.struct_size = size;
    EXPECT_EQ(read(&given).status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(says(read(&given).status().message(), {"struct_size", "NEWER_INIT"}));
    EXPECT_FALSE(write_struct(Newer{}, &given, kMacro, sizeof(Older)).ok());
    EXPECT_EQ(given.first, 7);
  }
}

TEST(CStructs, AreFilledInAsFarAsTheProgramKnowsThem) {
  struct {
    Newer known;
    std::int64_t third;
  } place{{sizeof place, 0, 0}, 9};
  ASSERT_TRUE(write_struct({.first = 1, .second = 2}, &place.known, kMacro, sizeof(Older)).ok());
  EXPECT_EQ(place.known.struct_size, sizeof place);
  EXPECT_EQ(place.known.second, 2);
  EXPECT_EQ(place.third, 0);
  Newer older{sizeof(Older), 0, 9};
  ASSERT_TRUE(write_struct({.first = 1, .second = 2}, &older, kMacro, sizeof(Older)).ok());
  EXPECT_EQ(older.first, 1);
  EXPECT_EQ(older.second, 9) << "behind what the program has";
}

TEST(CArguments, InputsAreNamedByTheirPlaceWhereTheModelIsKnown) {
  ModelInfo info;
  info.name = "m";
  info.inputs = {{"x"}, {"y"}};
  const Tensor tensor = Tensor::create(DType::kFloat32, {1}).value();
  const shoal_named_tensor inputs[3] = {{nullptr, handle_of<shoal_tensor>(&tensor)},
                                        {nullptr, handle_of<shoal_tensor>(&tensor)},
                                        {nullptr, handle_of<shoal_tensor>(&tensor)}};
  const Tensors named = tensors_of(inputs, 2, &info).value();
  EXPECT_EQ(named[0].name, "x");
  EXPECT_EQ(named[1].name, "y");
  EXPECT_TRUE(says(tensors_of(inputs, 3, &info).status().message(), {"inputs[2].name", "model 'm' has 2 inputs"}));
  EXPECT_TRUE(says(tensors_of(inputs, 1, nullptr).status().message(), {"inputs[0].name is NULL"}));
}

TEST(CArguments, NumbersAreInTheirRange) {
  EXPECT_EQ(number_of("n", 0, 5, 1).value(), 5);
  EXPECT_EQ(number_of("n", 3, 5, 1).value(), 3);
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{1} << 40, INT64_MIN})
    EXPECT_TRUE(says(number_of("n", wrong, 5, 1).status().message(), {"n is", "must be 1 to"}));
}

}  // namespace
}  // namespace shoal::c
