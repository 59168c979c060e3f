#include "shm/base/whole_options.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "shoal/options.hpp"

namespace shoal {
namespace {

/// A struct of a program, and what it has become in the library.
struct Older {
  StructSize<Older> struct_size;
  Text name = "older";
  List<Text> labels;
  int count = 1;
};
struct Newer {
  StructSize<Newer> struct_size;
  Text name = "newer";
  List<Text> labels;
  int count = 2;
  double share = 0.5;
  Text added = "a default that is longer than any short string";
  List<double> numbers = {1, 2};
};

TEST(WholeOptions, ReadNoFurtherThanTheProgramKnows) {
  struct {
    Older options{.name = "a text that is too long for a short string", .labels = {"x", "y"}, .count = 7};
    std::byte beyond[256];
  } program;
  std::memset(program.beyond, 0xfe, sizeof(program.beyond));
  const Newer read = whole(reinterpret_cast<const Newer&>(program.options));
  EXPECT_EQ(read.struct_size.bytes(), sizeof(Newer));
  EXPECT_EQ(read.name, "a text that is too long for a short string");
  EXPECT_NE(read.name.c_str(), program.options.name.c_str()) << "a copy";
  EXPECT_EQ(read.labels, (List<Text>{"x", "y"}));
  EXPECT_EQ(read.count, 7);
  EXPECT_EQ(read.share, 0.5);
  EXPECT_EQ(read.added, "a default that is longer than any short string");
  EXPECT_EQ(read.numbers, (List<double>{1, 2}));
}

TEST(WholeOptions, LeaveOutWhatOnlyTheProgramKnows) {
  const Newer program{.name = "new", .count = 9, .added = "unknown to the library"};
  const Older read = whole(reinterpret_cast<const Older&>(program));
  EXPECT_EQ(read.struct_size.bytes(), sizeof(Older));
  EXPECT_EQ(read.name, "new");
  EXPECT_EQ(read.count, 9);
}

TEST(StructSize, IsThatOfTheCodeThatCopies) {
  const Older program;
  const auto& seen_by_the_library = reinterpret_cast<const Newer&>(program);
  const StructSize<Newer> copy = seen_by_the_library.struct_size;
  EXPECT_EQ(copy.bytes(), sizeof(Newer));
  Newer other;
  other.struct_size = seen_by_the_library.struct_size;
  EXPECT_EQ(other.struct_size.bytes(), sizeof(Newer));
}

TEST(List, OwnsItsElements) {
  std::vector<std::string> strings{"a", "b"};
  List<Text> texts = strings;
  strings[0] = "changed";
  EXPECT_EQ(texts[0], "a");
  const List<Text> copy = texts;
  texts[1] = "other";
  EXPECT_EQ(copy[1], "b");
  List<Text> moved = std::move(texts);
  EXPECT_EQ(moved.size(), 2u);
  EXPECT_TRUE(texts.empty());  // NOLINT(bugprone-use-after-move)
  moved = {};
  EXPECT_TRUE(moved.empty());
  EXPECT_EQ((List<List<int>>{{1}, {2, 3}})[1], (List<int>{2, 3}));
}

TEST(Text, IsWhatItWasMadeOf) {
  EXPECT_EQ(Text().view(), "");
  EXPECT_STREQ(Text().c_str(), "");
  EXPECT_TRUE(Text("").empty());
  EXPECT_EQ(Text(std::string("a\0b", 3)).view().size(), 3u);
  EXPECT_EQ(Text(std::string_view("abc").substr(1)).string(), "bc");
  EXPECT_TRUE(Text("x") == "x" && Text("x") == std::string("x") && Text("x") != "y" && Text("x") != Text("y"));
}

TEST(Optional, OwnsWhatItHas) {
  Optional<Older> none;
  EXPECT_FALSE(none);
  Optional<Older> some = Older{.name = "x"};
  const Optional<Older> copy = some;
  some = Older{.name = "y"};
  EXPECT_EQ(copy->name, "x");
  EXPECT_EQ((*some).name, "y");
  none = std::move(some);
  EXPECT_FALSE(some);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(none->name, "y");
  none.reset();
  EXPECT_EQ(none.get(), nullptr);
}

}  // namespace
}  // namespace shoal
