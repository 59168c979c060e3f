// MXNet's C predict API as a client of a real daemon (SHOAL_PREDICT_MODEL).
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "tests/support/checkpoint.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/predict_api.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal::test {
namespace {

/// Programs choose the pool by their environment.
class Environment {
 public:
  Environment(const DaemonFixture& daemon, const char* model) {
    ::setenv("SHOAL_DIR", daemon.directory().c_str(), 1);
    ::setenv("SHOAL_PREDICT_MODEL", model, 1);
  }
  ~Environment() {
    ::unsetenv("SHOAL_DIR");  // otherwise the fixture takes this process for one of the daemon's
    ::unsetenv("SHOAL_PREDICT_MODEL");
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

/// data (n, 4), times the factors ("scaled"), plus `offset` ("plus").
Checkpoint write_decimal(const ScratchDirectory& models, const std::string& name, int offset = 1, const std::string& keys = "",
                         const std::vector<float>& factors = {1, 10, 100, 1000}) {
  const std::filesystem::path directory = models.path(name);
  write_checkpoint(directory, "net",
                   {{"broadcast_mul", "scaled", {}, {{"factor", factors}}},
                    {"_plus_scalar", "plus", {{"scalar", std::to_string(offset)}}, {}}},
                   "[-1, 4]");
  std::ofstream(directory / "model.toml", std::ios::app) << keys;
  return read_checkpoint((directory / "net").string());
}

const InputShapes& one_row() {
  static const InputShapes shapes{{"data", {1, 4}}};
  return shapes;
}

::testing::AssertionResult error_says(std::initializer_list<std::string_view> words) { return says(MXGetLastError(), words); }

class PredictPool : public ::testing::Test {
 protected:
  const ScratchDirectory models_;
  const Checkpoint decimal_ = write_decimal(models_, "decimal");
};

TEST_F(PredictPool, AnswersLikeThePredictorInTheProcess) {
  const PredictorPtr local = create(decimal_, one_row());
  const DaemonFixture daemon({.models = {"net=" + models_.path("decimal") + ",workers=2"}});
  const Environment environment(daemon, "net");
  const PredictorPtr pooled = create(decimal_, one_row());
  EXPECT_EQ(shape_of(pooled), (Sizes{1, 4}));
  EXPECT_EQ(type_of(pooled), 0);
  std::vector<float> room(4);
  EXPECT_EQ(MXPredGetOutput(pooled.get(), 0, room.data(), 4), -1);
  EXPECT_EQ(ask(pooled, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
  EXPECT_EQ(ask(pooled, {1, 2, 3, 4}), ask(local, {1, 2, 3, 4}));
  EXPECT_EQ(daemon.model("net")["counts"]["ok"], 2);
}

TEST_F(PredictPool, APredictorMayBeReshapedAndMadeForThreads) {
  const DaemonFixture daemon({.models = {"net=" + models_.path("decimal") + ",workers=2"}});
  const Environment environment(daemon, "net");
  const PredictorPtr predictor = create(decimal_, one_row());
  const PredictorPtr reshaped = reshape(predictor, {{"data", {2, 4}}});
  ASSERT_TRUE(reshaped) << MXGetLastError();
  EXPECT_EQ(shape_of(reshaped), (Sizes{2, 4})) << "before it runs";
  EXPECT_EQ(ask(reshaped, {1, 2, 3, 4, 0, 0, 0, 0}), (std::vector<float>{2, 21, 301, 4001, 1, 1, 1, 1}));
  EXPECT_EQ(ask(predictor, {1, 1, 1, 1}), (std::vector<float>{2, 11, 101, 1001}));

  constexpr int kThreads = 20, kRequests = 32;
  auto predictors = create_several(decimal_, {{"data", {8, 4}}}, kThreads / 2);
  for (int i = kThreads / 2; i < kThreads; ++i) predictors.push_back(create(decimal_, {{"data", {8, 4}}}));
  ASSERT_EQ(predictors.size(), std::size_t{kThreads});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int request = 0; request < kRequests; ++request) {
        std::vector<float> data(32), wanted;
        std::iota(data.begin(), data.end(), static_cast<float>(1000 * thread + request));
        for (std::size_t i = 0; i < data.size(); ++i) {
          constexpr float kFactors[] = {1, 10, 100, 1000};
          wanted.push_back(data[i] * kFactors[i % 4] + 1);
        }
        ASSERT_EQ(ask(predictors[static_cast<std::size_t>(thread)], data), wanted) << thread << ", " << request;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon.model("net")["counts"]["ok"], 2 + kThreads * kRequests);
}

TEST_F(PredictPool, AKilledWorkerLosesNoResult) {
  const DaemonFixture daemon({.models = {"net=" + models_.path("decimal") + ",workers=2"}});
  const Environment environment(daemon, "net");
  const PredictorPtr predictor = create(decimal_, one_row());
  for (int round = 0; round < 5; ++round) {
    for (const pid_t worker : daemon.workers("net")) ::kill(worker, SIGKILL);
    const auto value = static_cast<float>(round);
    EXPECT_EQ(ask(predictor, {value, 0, 0, 0})[0], value + 1);
  }
}

TEST_F(PredictPool, ASymbolThatIsNotTheServedOneIsAnErrorThatNamesBoth) {
  const ScratchDirectory others;
  const DaemonFixture daemon({.models = {"net=" + models_.path("decimal"), "echo=builtin:identity"}});
  const auto refuses = [&](const Checkpoint& model, const InputShapes& inputs, std::initializer_list<std::string_view> words) {
    EXPECT_FALSE(try_create(model, inputs));
    return error_says(words);
  };
  const Environment environment(daemon, "net");
  write_checkpoint(others.path("output"), "net", {{"_plus_scalar", "other", {{"scalar", "1"}}, {}}}, "[-1, 4]");
  EXPECT_TRUE(refuses(read_checkpoint(others.path("output/net")), one_row(),
                      {"SHOAL_PREDICT_MODEL", "'other_output' float32 1x4", "'net'", "'plus_output' float32 ?x4"}));
  write_checkpoint(others.path("shape"), "net", {{"_plus_scalar", "plus", {{"scalar", "1"}}, {}}}, "[-1, 4]");
  EXPECT_TRUE(refuses(read_checkpoint(others.path("shape/net")), {{"data", {1, 5}}},
                      {"input 'data' float32 1x5", "output 'plus_output' float32 1x5", "input 'data' float32 ?x4"}));
  write_checkpoint(others.path("type"), "net", {{"Cast", "plus", {{"dtype", "int32"}}, {}}}, "[-1, 4]");
  EXPECT_TRUE(refuses(read_checkpoint(others.path("type/net")), one_row(),
                      {"output 'plus_output' int32 1x4", "output 'plus_output' float32 ?x4"}));
  write_graph(others.path("name"), "net",
              R"({"nodes": [{"op": "null", "name": "image", "inputs": []},
                {"op": "_plus_scalar", "name": "plus", "attrs": {"scalar": "1"}, "inputs": [[0, 0, 0]]}],
                "arg_nodes": [0], "heads": [[1, 0, 0]]})",
              "[]");
  EXPECT_TRUE(refuses(read_checkpoint(others.path("name/net")), {{"image", {1, 4}}}, {"'image'", "'data'"}));
  write_graph(others.path("more"), "net",
              R"({"nodes": [{"op": "null", "name": "data", "inputs": []},
                {"op": "_plus_scalar", "name": "plus", "attrs": {"scalar": "1"}, "inputs": [[0, 0, 0]]},
                {"op": "negative", "name": "minus", "inputs": [[0, 0, 0]]}],
                "arg_nodes": [0], "heads": [[1, 0, 0], [2, 0, 0]]})",
              "[]");
  EXPECT_TRUE(refuses(read_checkpoint(others.path("more/net")), one_row(), {"'minus_output'", "'plus_output'"}));
  const PredictorPtr right = create(decimal_, one_row());
  EXPECT_EQ(ask(right, {1, 2, 3, 4})[3], 4001);
}

/// The same checkpoint with another text in its symbol.
Checkpoint changed(Checkpoint model, const std::string& from, const std::string& to) {
  const std::size_t at = model.symbol.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << model.symbol;
  if (at != std::string::npos) model.symbol.replace(at, from.size(), to);
  return model;
}

// Inputs and outputs are called alike, and have the same shapes.
TEST_F(PredictPool, ASymbolThatComputesSomethingElseIsNotTheServedOne) {
  write_decimal(models_, "both", 1, "outputs = [\"scaled_output\", \"plus_output\"]\n");
  const DaemonFixture daemon({.models = {"both=" + models_.path("both"), "net=" + models_.path("decimal")}});
  const std::string op = R"("_plus_scalar")", scalar = R"("scalar": "1")", inner = R"("name": "scaled")";
  const std::vector<Checkpoint> others{changed(decimal_, op, R"("_minus_scalar")"), changed(decimal_, scalar, R"("scalar": "2")"),
                                       changed(decimal_, inner, R"("name": "times")")};
  {
    const Environment environment(daemon, "net");
    for (const Checkpoint& other : others) {
      EXPECT_FALSE(try_create(other, one_row())) << other.symbol;
      EXPECT_TRUE(error_says({"MXPredCreate", "INVALID_ARGUMENT", "SHOAL_PREDICT_MODEL", "'net'", "operators", "attributes"}));
      EXPECT_TRUE(create_several(other, one_row(), 2).empty());
      EXPECT_FALSE(create_partial(other, one_row(), {"plus"}));
    }
    const PredictorPtr right = create(decimal_, one_row());
    EXPECT_EQ(ask(right, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
    write_decimal(models_, "decimal", 5);
    ASSERT_TRUE(daemon.connect().reload("net").ok());
    EXPECT_FALSE(reshape(right, {{"data", {2, 4}}})) << "another symbol is served now";
    EXPECT_TRUE(error_says({"MXPredReshape", "'net'", "operators"}));
  }
  const Environment environment(daemon, "both");
  EXPECT_FALSE(create_partial(others[0], one_row(), {"plus"})) << "served with other outputs";
  EXPECT_TRUE(error_says({"'both'", "operators"}));
}

TEST_F(PredictPool, ASymbolThatIsWrittenOtherwiseIsTheServedOne) {
  write_graph(models_.path("echo"), "net",
              R"({"nodes": [{"op": "null", "name": "data", "inputs": []}, {"op": "_copy", "name": "data", "inputs": [[0, 0, 0]]}],
                "arg_nodes": [0], "heads": [[1, 0, 0]]})",
              "[]");
  const DaemonFixture daemon({.models = {"net=" + models_.path("decimal"), "echo=builtin:identity"}});
  {
    const Environment environment(daemon, "net");
    Checkpoint written = decimal_;
    nlohmann::json symbol = nlohmann::json::parse(decimal_.symbol);
    for (nlohmann::json& node : symbol["nodes"]) {
      node["attr"] = node.value("attrs", nlohmann::json::object());
      node.erase("attrs");
      node["attr"]["__lr_mult__"] = "0.1";
    }
    symbol["attrs"]["mxnet_version"] = {"int", 10500};
    written.symbol = symbol.dump(3);
    ASSERT_NE(written.symbol, decimal_.symbol);
    EXPECT_EQ(ask(create(written, one_row()), {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
  }
  const Environment environment(daemon, "echo");  // the daemon tells nothing of its graph, as an older one of any model
  EXPECT_EQ(ask(create(read_checkpoint(models_.path("echo/net")), one_row()), {1, 2, 3, 4}), (std::vector<float>{1, 2, 3, 4}));
}

// A network serves inner values only if its model.toml names them.
TEST_F(PredictPool, PartialOutputsAreThoseThatTheModelServes) {
  write_decimal(models_, "both", 1, "outputs = [\"scaled_output\", \"plus_output\"]\n");
  const DaemonFixture daemon({.models = {"both=" + models_.path("both"), "net=" + models_.path("decimal")}});
  {
    const Environment environment(daemon, "both");
    const PredictorPtr predictor = create_partial(decimal_, one_row(), {"plus", "scaled"});
    ASSERT_TRUE(predictor) << MXGetLastError();
    EXPECT_EQ(ask(predictor, {1, 2, 3, 4}), (std::vector<float>{2, 21, 301, 4001}));
    EXPECT_EQ(output_of(predictor, 1), (std::vector<float>{1, 20, 300, 4000}));
    EXPECT_FALSE(try_create(decimal_, one_row())) << "the symbol has one output, the model two";
  }
  const Environment environment(daemon, "net");
  EXPECT_FALSE(create_partial(decimal_, one_row(), {"scaled"}));
  EXPECT_TRUE(error_says({"MXPredCreatePartialOut", "'scaled_output'", "'plus_output'"}));
}

TEST_F(PredictPool, AMissingModelOrDaemonIsNamed) {
  const DaemonFixture daemon({.models = {"net=" + models_.path("decimal")}});
  {
    const Environment environment(daemon, "nothing");
    EXPECT_FALSE(try_create(decimal_, one_row()));
    EXPECT_TRUE(error_says({"NOT_FOUND", "nothing"}));
  }
  const Environment environment(daemon, "net");
  ::setenv("SHOAL_DIR", "/tmp/shoal-nowhere", 1);
  EXPECT_FALSE(try_create(decimal_, one_row()));
  EXPECT_TRUE(error_says({"MXPredCreate", "UNAVAILABLE", "/tmp/shoal-nowhere"}));
}

TEST_F(PredictPool, AModelThatChangesMeanwhileIsAnError) {
  const DaemonFixture daemon({.models = {"net=" + models_.path("decimal")}});
  const Environment environment(daemon, "net");
  const PredictorPtr predictor = create(decimal_, one_row());
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4})[0], 2);
  write_decimal(models_, "decimal", 1, "", {5, 10, 100, 1000});
  Pool pool = daemon.connect();
  ASSERT_TRUE(pool.reload("net").ok());
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4})[0], 6) << "new weights are none of its business";

  write_decimal(models_, "decimal", 5);
  ASSERT_TRUE(pool.reload("net").ok());
  int result = 0;  // the news that the model was loaded may come after an answer
  for (int i = 0; i < 1000 && result == 0; ++i) {
    result = MXPredForward(predictor.get());
    if (result == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(result, -1);
  EXPECT_TRUE(error_says({"MXPredForward", "FAILED_PRECONDITION", "'net' has changed", "symbol"}));
  EXPECT_EQ(MXPredForward(predictor.get()), -1) << "again and again";
  write_decimal(models_, "decimal");
  ASSERT_TRUE(pool.reload("net").ok());
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4})[0], 2) << "the symbol is the old one again";

  write_checkpoint(models_.path("decimal"), "net", {{"_plus_scalar", "other", {{"scalar", "1"}}, {}}}, "[-1, 4]");
  const auto reloaded = pool.reload("net");
  ASSERT_TRUE(reloaded.ok()) << reloaded.status().to_string();
  EXPECT_EQ(MXPredForward(predictor.get()), -1);
  EXPECT_TRUE(error_says({"MXPredForward", "'net' has changed", "plus_output"}));
  std::vector<float> room(4);
  EXPECT_EQ(MXPredGetOutput(predictor.get(), 0, room.data(), 4), -1) << "outputs of an earlier run are not those of this one";
}

TEST_F(PredictPool, AForkedChildMakesItsOwn) {
  const DaemonFixture daemon({.models = {"net=" + models_.path("decimal")}});
  const Environment environment(daemon, "net");
  const PredictorPtr predictor = create(decimal_, one_row());
  EXPECT_EQ(ask(predictor, {1, 2, 3, 4})[0], 2);
  EXPECT_EQ(exit_code_of([&] {
              if (MXPredForward(predictor.get()) != -1 || !error_says({"forked", "after fork"})) return 1;
              const PredictorPtr own = create(decimal_, one_row());
              return own && ask(own, {7, 0, 0, 0})[0] == 8 ? 0 : 2;
            }),
            0);
  EXPECT_EQ(ask(predictor, {3, 0, 0, 0})[0], 4);
}

// An MXNet program, linked with -lshoal_predict, without and with a daemon.
TEST_F(PredictPool, TheExampleGivesTheSameAnswersBothWays) {
  const std::vector<float> data{0, 2, 3, 4};
  std::ofstream(models_.path("x.f32"), std::ios::binary).write(reinterpret_cast<const char*>(data.data()), 16);
  const std::string command = (binary_directory() / "example_mxnet_predict").string() + " " +
                              models_.path("decimal/net-symbol.json") + " " + models_.path("decimal/net-0000.params") + " " +
                              models_.path("x.f32") + " 1,4";
  const auto output_of_command = [](const std::string& words, int exit_code = 0) {
    std::FILE* const pipe = ::popen(words.c_str(), "r");
    std::string output(1000, '\0');
    output.resize(std::fread(output.data(), 1, output.size(), pipe));
    const int status = ::pclose(pipe);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == exit_code) << words << ": status " << status;
    return output;
  };
  const std::string wanted = "3 4001.0000\n2 301.0000\n1 21.0000\n";
  EXPECT_EQ(output_of_command(command), wanted);
  const DaemonFixture daemon({.models = {"net=" + models_.path("decimal")}});
  EXPECT_EQ(output_of_command("SHOAL_DIR=" + daemon.directory() + " SHOAL_PREDICT_MODEL=net " + command), wanted);
  EXPECT_EQ(daemon.model("net")["counts"]["ok"], 1);
  for (const char* wrong : {"x", "-1", "", "99999999999", "1.5"}) {
    const std::string words = command + "," + wrong + ",4 2>&1";
    EXPECT_NE(output_of_command(words, 2).find(std::string("SHAPE is '1,4,") + wrong + ",4'"), std::string::npos);
  }
}

}  // namespace
}  // namespace shoal::test
