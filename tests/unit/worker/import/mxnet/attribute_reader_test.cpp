#include "worker/import/mxnet/attribute_reader.hpp"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>

namespace shoal::worker {
namespace {

MxnetNode node_with(const std::string& text) { return {"Convolution", "conv1", {{"key", text}}, {}}; }

TEST(ParseTuple, TakesEverySpellingOfMxnet) {
  for (const char* text : {"(3, 3)", "[3,3]", " ( 3 , 3 ) ", "(3L, 3L)", "(3,3,)"})
    EXPECT_EQ(parse_tuple(text), (Dims{3, 3})) << text;
  EXPECT_EQ(parse_tuple("3"), Dims{3});
  EXPECT_EQ(parse_tuple("(-1,)"), Dims{-1});
  EXPECT_EQ(parse_tuple("()"), Dims{});
  for (const char* text : {"", "(3, 3", "(3,x)", "3, 3", "(3 3)", "(,)", "(3.5)", "(99999999999999999999)"})
    EXPECT_FALSE(parse_tuple(text)) << text;
}

TEST(AttributeReader, ReadsNumbersAsMxnetDoes) {
  const auto number = [](const char* text) {
    const MxnetNode node = node_with(text);
    AttributeReader reader(node);
    const double value = reader.number("key");
    return reader.status().ok() ? value : std::nan("");
  };
  EXPECT_EQ(number("2e-05"), 2e-05);
  EXPECT_EQ(number(" 1.5 "), 1.5);
  EXPECT_EQ(number("0.5f"), 0.5);
  EXPECT_EQ(number("inf"), INFINITY);
  EXPECT_EQ(number("+3"), 3);
  EXPECT_EQ(number("4e-320"), 4e-320);
  for (const char* text : {"", "1e-3x", "four", "0x10", "1 2", "f", "+-1", "1e400", "-1e400f"})
    EXPECT_TRUE(std::isnan(number(text))) << text;
}

TEST(AttributeReader, ReadsTuplesOfNumbers) {
  const auto reals = [](const char* text) {
    const MxnetNode node = node_with(text);
    AttributeReader reader(node);
    const std::vector<float> numbers = reader.reals("key");
    return reader.status().ok() ? numbers : std::vector<float>{-99};
  };
  for (const char* text : {"(0.5, 2)", "[0.5,2]", "( 0.5 , 2L, )", "(0.50000000000000000, 2.0)"})
    EXPECT_EQ(reals(text), (std::vector<float>{0.5F, 2})) << text;
  EXPECT_EQ(reals("0.25"), std::vector<float>{0.25F});
  EXPECT_EQ(reals("()"), std::vector<float>());
  for (const char* text : {"", "(0.5", "(small,)", "1, 2", "(,)", "(1e60)", "None"})
    EXPECT_EQ(reals(text), std::vector<float>{-99}) << text;
  const MxnetNode none;
  AttributeReader reader(none);
  EXPECT_EQ(reader.reals("key", std::vector{1.5F}), std::vector{1.5F});
  EXPECT_TRUE(reader.status().ok());
}

/// "0,5" in C, as setlocale(LC_ALL, "") may make it.
TEST(AttributeReader, ReadsNumbersInOneWayWhateverTheLocale) {
  if (!std::setlocale(LC_NUMERIC, "de_DE.UTF-8") && !std::setlocale(LC_NUMERIC, "de_DE"))
    GTEST_SKIP() << "no German locale is installed";
  const MxnetNode node = node_with("0.5");
  AttributeReader reader(node);
  EXPECT_EQ(reader.number("key"), 0.5);
  EXPECT_TRUE(reader.status().ok()) << reader.status().to_string();
  std::setlocale(LC_NUMERIC, "C");
}

TEST(AttributeReader, TakesNoneForAWholeTupleAsNotGiven) {
  const MxnetNode node = node_with("None");
  AttributeReader reader(node);
  EXPECT_EQ(reader.optional_tuple("key", OptionalDims{}), OptionalDims{});
  EXPECT_EQ(reader.tuple("key", Dims{1}), Dims{1});
  EXPECT_EQ(reader.optional_tuple("key"), OptionalDims{std::nullopt});  // where it must be given it has one entry
  EXPECT_TRUE(reader.status().ok()) << reader.status().to_string();
}

TEST(AttributeReader, ReadsTruthValues) {
  for (const auto& [text, value] : {std::pair{"True", true}, {"true", true}, {"1", true}, {"False", false}, {"0", false}}) {
    const MxnetNode node = node_with(text);
    AttributeReader reader(node);
    EXPECT_EQ(reader.flag("key", !value), value) << text;
    EXPECT_TRUE(reader.status().ok());
  }
}

TEST(AttributeReader, NamesOperatorNodeAttributeAndText) {
  const MxnetNode node = node_with("perhaps");
  AttributeReader reader(node);
  reader.flag("key", false);
  reader.integer("other");  // the first error stays
  for (const char* part : {"Convolution 'conv1'", "key", "perhaps"}) {
    EXPECT_NE(reader.status().message().find(part), std::string::npos) << reader.status().to_string();
  }
}

TEST(AttributeReader, ReportsUnreadKeysButNoHints) {
  const MxnetNode node{"Activation", "a", {{"odd", "1"}, {"__layout__", "x"}, {"weight_lr_mult", "2"}, {"ctx_group", "g"}}, {}};
  EXPECT_EQ(AttributeReader(node).unread(), std::vector<std::string>{"odd"});
}

}  // namespace
}  // namespace shoal::worker
