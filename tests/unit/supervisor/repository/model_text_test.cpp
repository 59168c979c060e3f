#include "supervisor/repository/model_text.hpp"

#include "shm/wire/control.hpp"
#include "shm/wire/model_json.hpp"
#include "tests/support/says.hpp"

namespace shoal::supervisor {
namespace {

using test::says;

TEST(LoadText, FitsIntoAControlMessageOrIsRefused) {
  ServedModel model{.name = "net", .path = "/models/net", .files = {}, .config = {}, .labels = {}};
  model.config.shapes.assign(2000, std::vector<TensorSpec>{{"data", DType::kFloat32, Shape{1, 3, 224, 224}}});
  const Status refused = wire::load_text(model).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(says(refused.message(), {"'net'", "/models/net", "at most 61440", "`shapes`"}));
  model.config.shapes.resize(500);
  EXPECT_LE(wire::load_text(model).value().size(), wire::kMaxControlText);
}

// A zygote that was taken over may say anything.
TEST(ParseLoaded, RefusesWhatNoRequestCouldHold) {
  const auto described = [](std::size_t outputs) {
    std::string text = R"({"inputs": [], "outputs": [)";
    for (std::size_t i = 0; i < outputs; ++i)
      text += std::string(i == 0 ? "" : ",") + R"({"name": "o", "dtype": "float32", "shape": [1]})";
    return text + "]}";
  };
  EXPECT_TRUE(parse_loaded(described(256)).ok());
  EXPECT_TRUE(says(parse_loaded(described(257)).status().message(), {"257 outputs", "at most 256"}));
}

TEST(ParseLoaded, AnotherStateIsAnotherSignature) {
  const auto loaded = [](const std::string& in, const std::string& more = "") {
    return parse_loaded(R"({"inputs": [], "outputs": [], "state": [{"out": "h_out", "in": ")" + in + R"(", "shape": [-1, 8])" +
                        more + "}]}")
        .value();
  };
  const LoadReport report = loaded("h_in");
  EXPECT_EQ(report.state, (std::vector<StatePair>{{"h_out", "h_in", {-1, 8}}}));
  EXPECT_NE(report.signature("net"), LoadReport{}.signature("net"));
  EXPECT_NE(report.signature("net"), loaded("c_in").signature("net"));
  const LoadReport batch = loaded("h_in", R"(, "batch_input": "data", "batch_axis": 1)");
  EXPECT_EQ(batch.state, (std::vector<StatePair>{{"h_out", "h_in", {-1, 8}, "data", 1}}));
  EXPECT_NE(report.signature("net"), batch.signature("net"));
  EXPECT_FALSE(
      parse_loaded(R"({"inputs": [], "outputs": [], "state": [{"out": "o", "in": "i", "shape": [], "batch_axis": -1}]})"));
  const ServedModel model{.name = "net", .path = "/models/net", .files = {}, .config = {}, .labels = {}};
  EXPECT_TRUE(says(describe_text(model, report, 1, {1}), {R"("state":[{"in":"h_in","out":"h_out","shape":[-1,8]}])"}));
  EXPECT_TRUE(says(describe_text(model, batch, 1, {1}), {R"("state":[{"batch_axis":1,"batch_input":"data","in":"h_in",)"}));
}

TEST(ParseLoaded, KeepsLayoutsThatFitTheirShapes) {
  const auto loaded = [](const std::string& layout) {
    return parse_loaded(R"({"inputs": [{"name": "a", "dtype": "float32", "shape": [1, -1], "layout": ")" + layout +
                        R"("}], "outputs": []})");
  };
  EXPECT_EQ(loaded("TN").value().inputs[0].layout, "TN");
  EXPECT_FALSE(loaded(std::string(1000, 'N')).ok());
}

// The log repeats them, and many would push out what others have to say.
TEST(ParseLoaded, KeepsFewWarningsAndShortTexts) {
  std::string text = R"({"inputs": [], "outputs": [], "hash": ")" + std::string(5000, 'h') + R"(", "warnings": [)";
  for (int i = 0; i < 20; ++i) text += (i == 0 ? "\"" : ",\"") + std::string(2000, 'w') + "\"";
  const LoadReport report = parse_loaded(text + "]}").value();
  ASSERT_EQ(report.warnings.size(), 16u);
  EXPECT_LE(report.warnings.front().size(), 1000u);
  EXPECT_EQ(report.warnings.back(), "5 more warnings");
  EXPECT_LE(report.hash.size(), 1000u);
}

TEST(ParseLoaded, TellsClientsAFingerprintThatIsOne) {
  const auto loaded = [](const std::string& fingerprint) {
    return parse_loaded(R"({"inputs": [], "outputs": [], "fingerprint": )" + fingerprint + "}");
  };
  const ServedModel model{.name = "net", .path = "/models/net", .files = {}, .config = {}, .labels = {}};
  const LoadReport report = loaded(R"("mxnet1:0123456789abcdef")").value();
  EXPECT_EQ(report.signature("net"), LoadReport{}.signature("net")) << "requests fit as before";
  EXPECT_TRUE(says(describe_text(model, report, 1, {1}), {R"("fingerprint":"mxnet1:0123456789abcdef")"}));
  EXPECT_EQ(describe_text(model, {}, 1, {1}).find("fingerprint"), std::string::npos) << "its format has none";
  EXPECT_TRUE(loaded('"' + std::string(64, 'a') + '"').ok());
  EXPECT_TRUE(says(loaded('"' + std::string(65, 'a') + '"').status().message(), {"zygote", "fingerprint"}));
  for (const char* const other : {R"("A")", R"("a b")", R"("\n")", R"("\u00e4")", "7", "null", "[]"})
    EXPECT_FALSE(loaded(other)) << other;
}

TEST(ParseLoaded, RefusesValuesThatAreNestedDeeply) {
  const std::string deep(20, '['), end(20, ']');
  const std::string text =
      R"({"inputs": [{"name": "a", "dtype": "float32", "shape": [1], "ranges": )" + deep + end + R"(}], "outputs": []})";
  EXPECT_TRUE(says(parse_loaded(text).status().message(), {"nested too deeply"}));
}

}  // namespace
}  // namespace shoal::supervisor
