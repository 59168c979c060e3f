// Today's daemon with clients of other releases, and today's client with daemons of other releases.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "shm/wire/messages.hpp"
#include "shoal/pool.hpp"
#include "tests/integration/old_client.hpp"
#include "tests/integration/old_daemon.hpp"
#include "tests/support/pool_fixture.hpp"
#include "tests/support/says.hpp"

namespace shoal::test {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr std::uint64_t kAllFeatures = ~std::uint64_t{0};
constexpr std::uint16_t kOk = 0, kInvalidArgument = 1, kNotFound = 2;  // as bytes
constexpr std::uint16_t kBundle = 10;
constexpr std::size_t kStatusAt = 34;  // of a REPLY
const std::string kSpeaksWire = "speaks " + std::to_string(wire::kVersionMajor);
const std::vector<float> kNumbers = {1, 2, 3, 4};

// Whatever the older answer has is there, and of the same type. null stands for a value that is not known.
void expect_has_all_of(const json& answer, const json& older, const std::string& where) {
  if (answer.is_null() || older.is_null()) return;
  ASSERT_TRUE(answer.type_name() == std::string(older.type_name())) << where << ": " << answer << ", formerly " << older;
  if (older.is_array() && !older.empty() && !answer.empty()) expect_has_all_of(answer[0], older[0], where + "[0]");
  if (!older.is_object()) return;
  for (const auto& [key, value] : older.items()) {
    EXPECT_TRUE(answer.contains(key)) << where << " has lost '" << key << "'";
    if (answer.contains(key)) expect_has_all_of(answer[key], value, where + "." + key);
  }
}

std::string source_directory() {
  const char* const source = std::getenv("SHOAL_SOURCE_DIR");
  return source ? source : ".";
}

std::vector<float> values_of(const Tensors& tensors) {
  const auto values = tensors.at(0).tensor.values<float>();
  return {values.begin(), values.end()};
}

class Neighbors : public testing::TestWithParam<const char*> {
 protected:
  const WireFixture fixture_{GetParam()};
};
std::string release_name(const testing::TestParamInfo<const char*>& release) { return release.param; }

// ---- today's daemon ----

class OlderClient : public Neighbors {
 protected:
  // Returns the status.
  std::uint16_t ask(OldClient& client, const std::string& question, const std::string& answer) const {
    const std::uint16_t status = client.ask(fixture_.message(question));
    expect_has_all_of(client.answer(), json::parse(fixture_.message(answer)[1]), answer);
    return status;
  }
  // Sends 32 requests at once, takes their answers, and returns how many of the messages were bundles.
  int count_bundles(OldClient& client, std::uint64_t first_seq) const {
    constexpr std::uint64_t kRequests = 32;
    std::vector<RawMessage> requests;
    for (std::uint64_t i = 0; i < kRequests; ++i) requests.push_back(client.request("REQUEST", first_seq + i));
    client.send_together(requests);
    int bundles = 0;
    for (std::uint64_t answers = 0; answers < kRequests && !HasFailure();) {
      const std::string head = client.receive()[0];
      const bool is_bundle = value_at<std::uint16_t>(head, kKindAt) == kBundle;
      if (is_bundle) {
        EXPECT_EQ(head.substr(0, 16), fixture_.packet("BUNDLE").substr(0, 16));
        EXPECT_EQ(head.substr(32, 8), fixture_.packet("BUNDLE").substr(32, 8)) << "the first message in it";
      } else {
        EXPECT_EQ(head.substr(0, kSeqAt), fixture_.packet("REPLY").substr(0, kSeqAt));
        EXPECT_EQ(value_at<std::uint16_t>(head, kStatusAt), kOk);
      }
      answers += is_bundle ? value_at<std::uint32_t>(head, 16) : 1;
      bundles += is_bundle;
    }
    return bundles;
  }

  DaemonFixture daemon_{{.models = {"echo=builtin:identity,workers=1"}, .limits = "client_bad_messages = 0\n"}};
};
INSTANTIATE_TEST_SUITE_P(Release, OlderClient, testing::ValuesIn(kReleases), release_name);

TEST_P(OlderClient, GetsRightAnswers) {
  for (const char* attach : {"ATTACH_WITHOUT_FEATURES", "ATTACH"}) {
    OldClient client(daemon_.directory(), fixture_);
    const bool has_features = client.attach(fixture_.packet(attach)) != 0;
    EXPECT_EQ(has_features, std::string(attach) == "ATTACH");
    client.describe();
    std::copy(kNumbers.begin(), kNumbers.end(), client.input());
    client.send(client.request("REQUEST", 30));
    const RawMessage in_arena = client.receive(), expected = fixture_.message("REPLY");
    EXPECT_EQ(in_arena.size(), 1u);
    ASSERT_EQ(in_arena[0].size(), expected[0].size());
    EXPECT_EQ(in_arena[0].substr(0, kSeqAt), expected[0].substr(0, kSeqAt));
    EXPECT_EQ(value_at<std::uint64_t>(in_arena[0], kSeqAt), 30u);
    EXPECT_EQ(in_arena[0].substr(34, 10), expected[0].substr(34, 10)) << "status, ran, released, attempts, outputs, batch";
    EXPECT_EQ(in_arena[0].substr(48, 8), expected[0].substr(48, 8)) << "model_version";
    EXPECT_EQ(in_arena[0].substr(72), expected[0].substr(72)) << "output";
    EXPECT_EQ(client.output_at(128), kNumbers);

    client.send(client.request("REQUEST_IN_FRAME", 31));
    const RawMessage in_frame = client.receive();
    ASSERT_EQ(in_frame.size(), 3u);
    EXPECT_EQ(value_at<std::uint64_t>(in_frame[0], kSeqAt), 31u);
    EXPECT_EQ(in_frame[0].substr(34, 3), expected[0].substr(34, 3)) << "status, ran";
    EXPECT_EQ(in_frame[0].substr(72), fixture_.packet("REPLY_IN_FRAME").substr(72)) << "output";
    EXPECT_EQ(in_frame[2], fixture_.message("REPLY_IN_FRAME")[2]);
  }
}

TEST_P(OlderClient, HearsBundlesOnlyIfItKnowsThem) {
  int bundles[2] = {};
  for (const bool knows : {false, true}) {
    OldClient client(daemon_.directory(), fixture_);
    client.attach(fixture_.packet(knows ? "ATTACH" : "ATTACH_WITHOUT_FEATURES"));
    client.describe();
    for (std::uint64_t round = 1; round <= 50 && !HasFailure(); ++round) bundles[knows] += count_bundles(client, round * 100);
  }
  EXPECT_EQ(bundles[false], 0);
  EXPECT_GT(bundles[true], 0) << "no turn had two answers, so nothing was tested";
}

TEST_P(OlderClient, FindsInAnswersWhatItsReleaseHadThere) {
  OldClient client(daemon_.directory(), fixture_);
  client.attach(fixture_.packet("ATTACH"));
  client.describe();
  for (const char* request : {"REQUEST", "REQUEST_IN_FRAME", "REQUEST"}) {  // the last one meets another worker
    client.send(client.request(request, 30));
    EXPECT_EQ(value_at<std::uint16_t>(client.receive()[0], kStatusAt), kOk);
    const auto workers = daemon_.workers();
    if (!workers.empty() && request == std::string("REQUEST_IN_FRAME")) ::kill(workers[0], SIGKILL);
  }
  ASSERT_TRUE(daemon_.wait_until_ready());
  constexpr std::pair<const char*, const char*> kQuestions[] = {{"DESCRIBE", "DESCRIBED"}, {"DESCRIBE_VERSION", "DESCRIBED"},
                                                                {"LIST", "LISTED"},        {"STATS", "STATS_ANSWER"},
                                                                {"PING", "PONG"},          {"CRASHES", "CRASHES_ANSWER"},
                                                                {"TRACE", "TRACE_ANSWER"}, {"TRACE_PROCESS", "TRACE_ANSWER"},
                                                                {"LOAD", "CHANGED"},       {"RELOAD", "CHANGED"},
                                                                {"SCALE", "CHANGED"},      {"DRAIN", "CHANGED"},
                                                                {"UNLOAD", "UNLOADED"}};
  for (const auto& [question, answer] : kQuestions) EXPECT_EQ(ask(client, question, answer), kOk) << question;
  EXPECT_EQ(ask(client, "DRAIN", "NOT_DESCRIBED"), kNotFound) << "it is unloaded";
  client.send(fixture_.message("CANCEL"));  // of a request that is over: no answer
  EXPECT_EQ(ask(client, "STOP", "STOPPING"), kOk);
  EXPECT_EQ(daemon_.wait_for_exit(), 0);
}

TEST_P(OlderClient, FindsAllOfADescription) {
  const DaemonFixture daemon({.models = {"net=" + source_directory() + "/tools/shapes/model"}});
  OldClient client(daemon.directory(), fixture_);
  client.attach(fixture_.packet("ATTACH_WITHOUT_FEATURES"));
  RawMessage question = fixture_.message("DESCRIBE");
  question[1] = replaced(question[1], "echo", "net");
  ASSERT_EQ(client.ask(question), kOk) << client.answer();
  EXPECT_TRUE(client.answer()["preprocess"].is_object() && !client.answer()["labels"].empty()) << client.answer();
  json expected = json::parse(fixture_.message("DESCRIBED_WITH_EVERYTHING")[1]);
  expected["inputs"][0].erase("ranges");  // only where sizes are limited, and not those of this model
  expect_has_all_of(client.answer(), expected, "the description");
}

// PROTOCOL.md, section 6: what a client of the next release may send to a daemon of this one.
TEST_P(OlderClient, OfTheNextReleaseIsServed) {
  OldClient client(daemon_.directory(), fixture_);
  std::string attach = fixture_.packet("ATTACH") + "said by the next release";
  patch(attach, 8, std::uint64_t{1});
  patch(attach, 16, kAllFeatures);
  patch(attach, 24, std::uint64_t{2});
  patch(attach, 32, static_cast<std::uint32_t>(attach.size() - 40));
  EXPECT_EQ(client.attach(attach), std::uint64_t{wire::kKnownFeatures});
  client.describe();
  std::copy(kNumbers.begin(), kNumbers.end(), client.input());

  RawMessage request = client.request("REQUEST", 30);
  patch(request[0], kStatusAt, std::uint16_t{0xffff});                         // flags
  for (std::size_t i = 0; i < 5; ++i) patch(request[0], 88 + 91 + i, '\xff');  // reserved
  client.send(request);
  EXPECT_EQ(value_at<std::uint16_t>(client.receive()[0], kStatusAt), kOk);
  EXPECT_EQ(client.output_at(128), kNumbers);

  RawMessage question = fixture_.message("DESCRIBE");
  question[0] += "a longer head";
  question[1] = replaced(question[1], "{", R"({"news": [{"a": 1}], )");
  EXPECT_EQ(client.ask(question), kOk);
  question[1] = R"({"what": "sing"})";
  EXPECT_EQ(client.ask(question), kInvalidArgument);

  RawMessage unknown = client.request("REQUEST", 31), longer = client.request("REQUEST", 32);
  patch(unknown[0], kKindAt, std::uint16_t{99});
  longer[0] += std::string(8, '\0');
  for (const RawMessage& message : {unknown, longer}) {
    client.send(message);
    const RawMessage refused = client.receive();
    EXPECT_EQ(value_at<std::uint64_t>(refused[0], kSeqAt), value_at<std::uint64_t>(message[0], kSeqAt));
    EXPECT_EQ(value_at<std::uint16_t>(refused[0], kStatusAt), kInvalidArgument);
  }
  EXPECT_EQ(client.ask(fixture_.message("PING")), kOk) << "it is still there";
  std::string packet = fixture_.packet("BOUND");
  patch(packet, kKindAt, std::uint16_t{999});
  client.send_control(packet);
  EXPECT_EQ(client.receive_control().substr(0, kSeqAt), fixture_.packet("REFUSED").substr(0, kSeqAt));
}

TEST_P(OlderClient, OfAnotherVersionIsToldBoth) {
  OldClient of_control(daemon_.directory(), fixture_), of_messages(daemon_.directory(), fixture_);
  std::string attach = fixture_.packet("ATTACH");
  patch(attach, kVersionAt, std::uint16_t{77});
  EXPECT_TRUE(says(of_control.begin(attach), {"version 77", "speaks 1"}));
  of_messages.begin(fixture_.packet("ATTACH"));
  of_messages.be_connected();
  RawMessage welcomed = fixture_.message("WELCOMED");
  patch(welcomed[0], kVersionAt, std::uint16_t{77});
  of_messages.send(welcomed);
  const std::string refused = of_messages.receive_control();
  EXPECT_EQ(refused.substr(0, kSeqAt), fixture_.packet("REFUSED").substr(0, kSeqAt));
  EXPECT_TRUE(says(refused, {"version 77", kSpeaksWire}));
  EXPECT_EQ(of_messages.receive_control(), "") << "and then the end";
}

// ---- today's client ----

class OlderDaemon : public Neighbors {
 protected:
  void expect_right_answers(const DaemonHabits& habits) const;
};
INSTANTIATE_TEST_SUITE_P(Release, OlderDaemon, testing::ValuesIn(kReleases), release_name);

void expect_the_full_description(const ModelInfo& info) {
  EXPECT_EQ(info.version, 3u);
  ASSERT_EQ(info.inputs.size(), 2u);
  EXPECT_EQ(info.inputs[0], (TensorSpec{"data", DType::kFloat32, Shape{-1, -1}, {{1, 8}, {16, 32}}}));
  EXPECT_EQ(info.inputs[1], (TensorSpec{"ids", DType::kInt64, Shape{2}, {}}));
  ASSERT_EQ(info.outputs.size(), 1u);
  EXPECT_EQ(info.outputs[0], (TensorSpec{"out", DType::kFloat32, Shape{-1, 2}, {}}));
  EXPECT_EQ(info.labels, (std::vector<std::string>{"cat", "dog"}));
  ASSERT_TRUE(info.preprocess);
  EXPECT_EQ(*info.preprocess, (Preprocess{.resize = 256,
                                          .crop_height = 224,
                                          .crop_width = 200,
                                          .order = "BGR",
                                          .mean = {123.5f, 117, 104},
                                          .scale = {1, 1, 0.5f}}));
}

void OlderDaemon::expect_right_answers(const DaemonHabits& habits) const {
  OldDaemon daemon(fixture_, habits);
  {
    auto connected = Pool::connect({.directory = daemon.directory()});
    ASSERT_TRUE(connected.ok()) << connected.status().to_string();
    Pool& pool = *connected;
    const auto echo = [&] { return pool.submit("echo", {{"data", counting({4}, 1)}}).outcome(); };
    EXPECT_EQ(pool.list().value(), (std::vector<std::string>{"echo"}));
    EXPECT_EQ(pool.describe("echo").value().outputs[0].name, "data_output");
    EXPECT_EQ(pool.describe("more").status(), Status(StatusCode::kNotFound, "no model 'more' (served: echo)"));
    expect_the_full_description(pool.describe("net", 3).value());

    for (int i = 0; i < 2; ++i) {  // in a frame, because nobody knows the output's size, and then in the arena
      const Outcome outcome = echo();
      ASSERT_TRUE(outcome.outputs.ok()) << outcome.outputs.status().to_string();
      EXPECT_EQ(values_of(*outcome.outputs), (std::vector<float>{2, 4, 6, 8}));
      EXPECT_EQ(outcome.ran, Ran::kYes);
      EXPECT_EQ(outcome.attempts, i == 0 ? 2 : 1);
      EXPECT_EQ(outcome.batch, i == 0 ? 2 : 1);
      EXPECT_EQ(outcome.model_version, i == 0 ? 3u : 1u);
      EXPECT_EQ(outcome.queue_time, i == 0 ? 70us : 1us);
    }
    EXPECT_EQ(pool.usage().outputs.copied, 1u);

    if (habits.path == "PATH") {
      daemon.answer_with(OldDaemon::Answer::kBundled);
      EXPECT_EQ(values_of(echo().outputs.value()), (std::vector<float>{2, 4, 6, 8}));
    }

    daemon.answer_with(OldDaemon::Answer::kOverloaded);
    const Outcome full = echo();
    EXPECT_EQ(full.outputs.status(), Status(StatusCode::kOverloaded, "model 'echo': its queue is full"));
    EXPECT_EQ(full.retry_after, 250ms);
    EXPECT_EQ(full.ran, Ran::kNo);
    daemon.answer_with(OldDaemon::Answer::kUnderWay);
    const Outcome late = echo();
    EXPECT_EQ(late.outputs.status().code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(late.ran, Ran::kMaybe);
    EXPECT_TRUE(eventually([&] {
      pool.poll_once();
      return pool.usage().outputs.used_bytes == 0 && pool.usage().inputs.used_bytes == 0;
    })) << "RELEASE";

    EXPECT_EQ(pool.load("more", "builtin:identity").value().outcome, "loaded");
    EXPECT_EQ(pool.reload("more", "builtin:identity", true).value().version, 1u);
    EXPECT_EQ(pool.scale("more", 2).value().workers, 1);
    EXPECT_EQ(pool.drain("more").value().versions, (std::vector<std::uint64_t>{1}));
    EXPECT_EQ(pool.unload("more").value().outcome, "unloaded");
    EXPECT_TRUE(json::parse(pool.stats().value()).contains("supervisor"));
    EXPECT_TRUE(json::parse(pool.crashes("echo").value()).contains("crashes"));
    EXPECT_EQ(pool.trace("echo").value().events.size(), 3 * 32u);
    EXPECT_EQ(pool.trace({}, 4000).value().events.size(), 3 * 32u);
    EXPECT_TRUE(pool.stop().ok());
  }
  // Its questions have what the release asks.
  for (const char* name :
       {"DESCRIBE", "LIST", "STATS", "CRASHES", "TRACE", "TRACE_PROCESS", "LOAD", "RELOAD", "SCALE", "DRAIN", "UNLOAD", "STOP"}) {
    const json expected = json::parse(fixture_.message(name)[1]);
    EXPECT_EQ(std::ranges::count_if(daemon.questions(),
                                    [&](const json& question) {
                                      return std::ranges::all_of(expected.items(), [&](const auto& item) {
                                        return question.contains(item.key()) && question[item.key()] == item.value();
                                      });
                                    }),
              1)
        << name;
  }
}

TEST_P(OlderDaemon, WithoutFeaturesGivesRightAnswers) { expect_right_answers({.path = "PATH_WITHOUT_FEATURES"}); }
TEST_P(OlderDaemon, WithItsFeaturesGivesRightAnswers) { expect_right_answers({}); }
// PROTOCOL.md, section 6: what a daemon of the next release may send to a client of this one.
TEST_P(OlderDaemon, OfTheNextReleaseGivesRightAnswers) {
  expect_right_answers({.more_features = kAllFeatures, .is_newer = true});
}

TEST_P(OlderDaemon, OfAnotherVersionIsRefusedAndBothAreNamed) {
  const OldDaemon of_control(fixture_, {.control_version = 77}), of_messages(fixture_, {.version = 77});
  const Status control = Pool::connect({.directory = of_control.directory()}).status();
  EXPECT_TRUE(says(control.to_string(), {"INVALID_ARGUMENT", of_control.directory(), "version 77", "speaks 1"}));
  const Status messages = Pool::connect({.directory = of_messages.directory()}).status();
  EXPECT_TRUE(says(messages.to_string(), {"INVALID_ARGUMENT", of_messages.directory(), "version 77", kSpeaksWire}));
}

}  // namespace
}  // namespace shoal::test
