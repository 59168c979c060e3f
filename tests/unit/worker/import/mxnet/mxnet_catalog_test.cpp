#include "worker/import/mxnet/mxnet_catalog.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "worker/import/mxnet/mxnet_lowering.hpp"

namespace shoal::worker {
namespace {

ForeignOperator entry_of(const std::string& name) {
  const auto catalog = mxnet_catalog();
  const auto found = std::ranges::find(catalog, name, &ForeignOperator::name);
  return found == catalog.end() ? ForeignOperator() : *found;
}

TEST(MxnetCatalog, ListsEveryNameThatTheImporterKnowsOnce) {
  std::vector<std::string> listed, known;
  for (const ForeignOperator& entry : mxnet_catalog()) {
    listed.push_back(entry.name);
    listed.insert(listed.end(), entry.aliases.begin(), entry.aliases.end());
  }
  for (const MxnetOperator* op : all_mxnet_operators()) known.push_back(op->name);
  std::ranges::sort(listed);
  EXPECT_EQ(listed, known);
}

TEST(MxnetCatalog, PutsOtherNamesUnderTheFirst) {
  const std::vector<std::string> aliases = entry_of("SoftmaxOutput").aliases;
  EXPECT_NE(std::ranges::find(aliases, "Softmax"), aliases.end());
  EXPECT_EQ(entry_of("Softmax").name, "");
}

/// "_plus" is "elemwise_add": one row, not one for each family of names.
TEST(MxnetCatalog, HasOneEntryForEachOperatorHoweverItIsCalled) {
  for (const auto& [name, alias] : {std::pair("elemwise_add", "_plus"),
                                    {"elemwise_sub", "_Minus"},
                                    {"elemwise_mul", "_mul"},
                                    {"elemwise_div", "_Div"},
                                    {"broadcast_add", "broadcast_plus"},
                                    {"_contrib_round_ste", "_sparse__contrib_round_ste"},
                                    {"_contrib_sign_ste", "_sparse__contrib_sign_ste"},
                                    {"erf", "_npx_erf"}}) {
    const std::vector<std::string> aliases = entry_of(name).aliases;
    EXPECT_NE(std::ranges::find(aliases, alias), aliases.end()) << name << ", " << alias;
  }
}

TEST(MxnetCatalog, SaysWhatANodeBecomes) {
  EXPECT_EQ(entry_of("LogisticRegressionOutput").becomes, std::vector<std::string>{"Activation"});
  const ForeignOperator identity = entry_of("_copy");
  EXPECT_EQ(identity.name, "_copy");
  EXPECT_EQ(identity.becomes, std::vector<std::string>());
}

}  // namespace
}  // namespace shoal::worker
