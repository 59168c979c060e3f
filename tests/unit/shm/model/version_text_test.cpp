// The texts in which files are asked for and answered.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "shm/model/fetched_model.hpp"
#include "shm/model/version_entry.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

using nlohmann::json;
using test::says;
using test::ScratchDirectory;

// No value is its default.
constexpr const char* kEveryKey = R"(
inputs = [{name = "data", shape = ["1..64", 3, -1, "8.."], dtype = "uint8", layout = "NCHW"}, {name = "any", shape = "any"}, {name = "one", shape = []}]
outputs = ["prob"]
state = [{out = "prob", in = "any", shape = [-1, 2]}, {out = "h", in = "one", batch_input = "any", batch_axis = 1}]
labels = "names.txt"
shapes = [{data = [1, 3, 8, 8], any = [2], one = []}, {data = [4, 3, 8, 8], any = [0], one = []}]
buckets = [{batch = [1, 2, 4]}, {input = "data", dim = 2, sizes = [16, 32], crop = {prob = 1}}]
sparse = {data = "csr"}
device = "cpu-reference"
fallback = "error"
precision = "f32-fast"
max_error = 0.125
tuning_ms = 0
workers = 4
contexts = 2
threads = 3
queue_limit = 5
import_mb = 64
cache_mb = 7
timeout_ms = 0
max_batch = 8
max_delay_ms = 2.5
run_limit_ms = 99
quarantine_ms = 98
load_timeout_s = 97
memory_mb = 96
golden = "golden.npz"
golden_tolerance = 0.015625
versions = [3, 5]
[preprocess]
letterbox = true
border = 7
crop = [7, 8]
order = "BGR"
mean = [1, 2.1, 3]
scale = 0.3
)";

class VersionTextTest : public testing::Test {
 protected:
  VersionTextTest() {
    files_.write("3/net-symbol.json", "{}");
    files_.write("3/net-0000.params", "1234567");
    files_.write("names.txt", "cat\ndog\n");
    files_.write("3/names.txt", "cat\ndog\n");
    files_.write("5/readme");
    files_.write("model.toml", kEveryKey);
  }
  ModelRequest request(const std::string& keys = "") const { return parse_model_argument("net=" + files_.path() + keys).value(); }
  std::string answer_to(const ModelRequest& asked) const { return answer(parse_question(question_text(asked)).value()); }

  json json_of_answer() const {
    const std::string text = answer_to(request());
    return json::parse(text.substr(0, text.find('\n')));
  }
  static constexpr const char* kLabels = "\ncat\ndog";

  const ScratchDirectory files_;
};

TEST_F(VersionTextTest, CarriesEveryKey) {
  const auto direct = find_entries(request());
  const auto carried = parse_entries(answer_to(request()), request());
  ASSERT_TRUE(carried.ok()) << carried.status().to_string();
  ASSERT_EQ(carried->size(), 2u);
  ASSERT_TRUE(direct[0].failure.ok()) << direct[0].failure.to_string();
  const VersionEntry& entry = (*carried)[0];
  EXPECT_EQ(entry.model.config, direct[0].model.config);
  EXPECT_TRUE(same_version(entry, direct[0]));
  EXPECT_EQ(entry.model.labels, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(entry.model.files.files.at(0), files_.path("3/net-symbol.json"));
  EXPECT_EQ(entry.model.files.files.at(1), files_.path("3/net-0000.params"));
  EXPECT_EQ(entry.model.files.config_file, files_.path("model.toml"));
  EXPECT_EQ(entry.model.files.directory, files_.path("3"));
  EXPECT_EQ(entry.model.files.prefix, "net");
  EXPECT_EQ(entry.parameter_bytes, 7u);
  EXPECT_EQ(entry.model.name, "net");
  EXPECT_EQ((*carried)[1].failure, direct[1].failure);
  EXPECT_EQ((*carried)[1].model.files.version, 5u);
}

// Whoever adds a key to model.toml adds it to kEveryKey, and so to the texts.
TEST_F(VersionTextTest, KnowsTheKeysThatModelTomlHas) {
  const std::string all = parse_model_config("nothing = 1", "m").status().message();
  const std::string known = all.substr(all.find("there are ") + 10) + ", ";
  const json keys = json_of_answer().at("entries").at(0).at("keys");
  std::size_t count = 0;
  for (std::size_t at = 0, end; (end = known.find(", ", at)) != known.npos; at = end + 2, ++count)
    EXPECT_TRUE(keys.contains(known.substr(at, end - at))) << known.substr(at, end - at);
  EXPECT_EQ(count, keys.size());
}

TEST_F(VersionTextTest, CarriesTheKeysOfTheRequest) {
  const std::string keys =
      ",workers=2,input=data:1..9x4,shape=data:3x4,shape=data:4x4,buckets=1:2,versions=all,max_delay_ms=0.5,preset=imagenet";
  const auto direct = find_entries(request(keys));
  const auto carried = parse_entries(answer_to(request(keys)), request(keys));
  ASSERT_TRUE(carried.ok()) << carried.status().to_string();
  ASSERT_TRUE((*carried)[0].failure.ok()) << (*carried)[0].failure.to_string();
  EXPECT_EQ((*carried)[0].model.config, direct[0].model.config);
  EXPECT_EQ((*carried)[0].model.config.workers, 2);
}

TEST_F(VersionTextTest, SaysWhyThereIsNoVersion) {
  const auto none = parse_entries(answer_to(request(",versions=9")), request());
  ASSERT_TRUE(none.ok());
  ASSERT_EQ(none->size(), 1u);
  EXPECT_EQ((*none)[0].failure.code(), StatusCode::kNotFound);
  EXPECT_TRUE(says((*none)[0].failure.message(), {"'net'", "version 9", "3, 5"}));
}

TEST_F(VersionTextTest, RefusesMoreThanASupervisorShouldRead) {
  files_.write("3/names.txt", std::string(kLargestAnswerBytes, 'x'));
  const auto large = parse_entries(answer_to(request()), request());
  ASSERT_TRUE(large.ok());
  EXPECT_TRUE(says((*large)[0].failure.message(), {"'net'", files_.path(), "labels", std::to_string(kLargestAnswerBytes)}));
  const ScratchDirectory many;
  for (std::size_t i = 1; i <= kMostVersions + 1; ++i) many.write(std::to_string(i) + "/net-symbol.json");
  const ModelRequest asked = parse_model_argument("net=" + many.path() + ",versions=all").value();
  const auto refused = parse_entries(answer_to(asked), asked);
  ASSERT_TRUE(refused.ok());
  EXPECT_TRUE(says((*refused)[0].failure.message(), {"'net'", many.path(), "257", "256", "`versions`"}));
}

// The shortest label takes 32 bytes of the supervisor's memory.
TEST_F(VersionTextTest, TheNumberOfLabelsIsBoundedHoweverShortTheyAre) {
  for (const char* file : {"5/net-symbol.json", "5/net-0000.params"}) files_.write(file, "{}");
  const auto named_labels = [&](std::size_t in_3, std::size_t in_5) {
    files_.write("3/names.txt", std::string(in_3 - 1, '\n') + "last\n");
    files_.write("5/names.txt", std::string(in_5 - 1, '\n') + "last\n");
    return parse_entries(answer_to(request()), request()).value();
  };
  json bad = json_of_answer();
  const auto most = named_labels(kMostLabels - 1, 1);
  ASSERT_TRUE(most[0].failure.ok()) << most[0].failure.to_string();
  EXPECT_EQ(most[0].model.labels.size(), kMostLabels - 1);
  EXPECT_TRUE(says(named_labels(kMostLabels + 7, 1)[0].failure.message(), {"'net'", "3/names.txt", "524295", "524288"}));
  EXPECT_TRUE(says(named_labels(kMostLabels, 1)[0].failure.message(), {"'net'", "5/names.txt", "524289", "524288"}));
  bad["entries"][0]["labels"] = kMostLabels + 1;
  const auto parsed = parse_entries(bad.dump() + std::string(kMostLabels + 1, '\n'), request());
  EXPECT_TRUE(says(parsed.status().message(), {"'net'", "more than 524288 labels"}));
}

TEST_F(VersionTextTest, BelievesNoAnswerThatItDidNotCheck) {
  EXPECT_TRUE(answer_to(request()).ends_with(kLabels));
  const json good = json_of_answer();
  ASSERT_TRUE(parse_entries(good.dump() + kLabels, request()).ok());
  const auto refuses = [&](const char* pointer, const json& value) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    const auto parsed = parse_entries(bad.dump() + kLabels, request());
    EXPECT_EQ(parsed.status().code(), StatusCode::kInternal) << pointer << " = " << value;
    EXPECT_TRUE(says(parsed.status().message(), {"'net'", files_.path()}));
  };
  refuses("/entries", json::array());
  refuses("/entries", 7);
  refuses("/entries", nullptr);
  refuses("/entries/0", nullptr);
  refuses("/entries/0/version", 0);
  refuses("/entries/0/version", -3);
  refuses("/entries/0/version", 3.5);
  refuses("/entries/0/version", 5);  // as the second
  refuses("/entries/0/epoch", 1ULL << 40);
  refuses("/entries/0/directory", "relative");
  refuses("/entries/0/files", json::array());
  refuses("/entries/0/files/0", "");
  refuses("/entries/0/files/1", std::string("/a\0b", 4));
  refuses("/entries/0/config_file", 3);
  refuses("/entries/0/labels", "cat");
  for (const json& labels_count : {json(1), json(3), json(-2), json(1ULL << 63)}) refuses("/entries/0/labels", labels_count);
  refuses("/entries/0/stamp", 1);
  refuses("/entries/0/parameter_bytes", -1);
  refuses("/entries/0/parameter_bytes", 1e300);
  refuses("/entries/0/keys", json::array());
  refuses("/entries/0/keys/workers", 0);
  refuses("/entries/0/keys/workers", 1'000'000);
  refuses("/entries/0/keys/workers", 2.5);
  refuses("/entries/0/keys/workers", nullptr);
  refuses("/entries/0/keys/workers", 1ULL << 63);
  refuses("/entries/0/keys/contexts", 65);
  refuses("/entries/0/keys/max_delay_ms", -1);
  refuses("/entries/0/keys/inputs", {{{"name", "data"}, {"shape", {1, 2, 3, 4, 5, 6, 7, 8, 9}}}});
  refuses("/entries/0/keys/inputs", "data");
  refuses("/entries/0/keys/buckets", {4, 2});
  refuses("/entries/0/keys/nothing", 1);
  refuses("/entries/1/failure", {{"code", 0}, {"message", ""}});
  refuses("/entries/1/failure", {{"code", 99}, {"message", ""}});
  refuses("/entries/1/failure", {{"code", 1}});
  json many = good;
  for (std::uint64_t i = 6; many["entries"].size() <= kMostVersions; ++i)
    many["entries"].push_back({{"version", i}, {"failure", {{"code", 1}, {"message", ""}}}});
  EXPECT_FALSE(parse_entries(many.dump() + kLabels, request()).ok());
  const std::string deep(1 << 20, '[');
  EXPECT_TRUE(says(parse_entries(deep, request()).status().message(), {"nested too deeply"}));
  EXPECT_FALSE(parse_entries(R"({"entries": [{"version": 1, "keys": {"inputs": )" + deep, request()).ok());
}

// They would hold up the requests that wait meanwhile.
TEST_F(VersionTextTest, ReadsNoListThatIsTooLong) {
  json many = json_of_answer();
  json& inputs = many["entries"][0]["keys"]["inputs"];
  for (int i = 1; inputs.size() < 5'000; ++i) inputs.push_back({{"name", "a" + std::to_string(i)}, {"shape", json::array()}});
  const Status status = parse_entries(many.dump() + kLabels, request()).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_TRUE(says(status.message(), {"'net'", files_.path(), "'inputs'", "5000 entries", "at most 4096"}));
}

// The request's own keys, name and path hold, whatever the answer says.
TEST_F(VersionTextTest, TheRequestWinsOverTheAnswer) {
  json lie = json_of_answer();
  lie["entries"][0]["keys"]["workers"] = 1000;
  lie["entries"][0]["name"] = "other";
  const auto parsed = parse_entries(lie.dump() + kLabels, request(",workers=2"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ((*parsed)[0].model.config.workers, 2);
  EXPECT_EQ((*parsed)[0].model.name, "net");
  EXPECT_EQ((*parsed)[0].model.path, files_.path());
}

TEST_F(VersionTextTest, SurvivesAnyBytes) {
  const std::string good = answer_to(request());
  const std::string configuration = R"({"models": [{"name": "a", "path": "/a", "keys": {}}], "limits": {"connections": 4},
                                  "access": {"roles": {"user": ["uid:1000"]}, "socket_group": "gid:33"}})";
  std::mt19937 random(15);
  for (int round = 0; round < 3000; ++round) {
    for (const std::string& text : {good, configuration}) {
      std::string bad = text;
      for (int changes = 1 + round % 3; changes > 0; --changes) bad[random() % bad.size()] = static_cast<char>(random());
      if (round % 5 == 0) bad.resize(random() % bad.size());
      const auto entries = parse_entries(bad, request());
      if (entries.ok()) {
        EXPECT_LE((*entries)[0].model.config.workers, 1024);
      }
      (void)parse_configuration(bad);
      (void)parse_question(bad);
    }
  }
}

TEST(ConfigurationText, CarriesModelsAndLimits) {
  const ScratchDirectory files;
  const auto ask = [&] { return parse_configuration(answer(parse_question(question_text(files.path("shoal.toml"))).value())); };
  std::string text = std::string("[limits]\nconnections = 7\nclient_rate = 3\n[models.a]\npath = \"m\"\nworkers = 3\n") +
                     "[models.b]\npath = \"/b\"\n" + kEveryKey;
  text.replace(text.find("[preprocess]"), 12, "[models.b.preprocess]");
  files.write("shoal.toml", text);
  const auto direct = parse_daemon_config(text, "shoal.toml", files.path());
  ASSERT_TRUE(direct.ok()) << direct.status().to_string();
  const auto carried = ask();
  ASSERT_TRUE(carried.ok()) << carried.status().to_string();
  EXPECT_EQ(carried->limits, direct->limits);
  ASSERT_EQ(carried->models.size(), 2u);
  EXPECT_EQ(carried->models[0].name, "a");
  EXPECT_EQ(carried->models[0].path, files.path("m"));
  EXPECT_EQ(carried->models[0].overrides.workers, 3);
  EXPECT_EQ(carried->models[0].overrides.threads, std::nullopt) << "what is not said stays so";
  ModelConfig sent, came;
  apply_overrides(direct->models[1].overrides, sent);
  apply_overrides(carried->models[1].overrides, came);
  EXPECT_EQ(came, sent);

  files.write("shoal.toml", "[models.a]\npath = \"m\"\nworkres = 3\n");
  EXPECT_TRUE(says(ask().status().message(), {"shoal.toml:3", "'workres'"}));
  EXPECT_EQ(ask().status().code(), StatusCode::kInvalidArgument);
}

TEST(ConfigurationText, IsCheckedToo) {
  const auto refuses = [](const std::string& text) {
    EXPECT_EQ(parse_configuration(text).status().code(), StatusCode::kInternal) << text;
  };
  refuses("");
  refuses("{}");
  EXPECT_TRUE(parse_configuration(R"({"models": [], "limits": {}, "access": {"roles": {}}})").ok());
  refuses(R"({"models": [], "limits": {"connections": -1}, "access": {"roles": {}}})");
  refuses(R"({"models": [], "limits": {"nothing": 1}, "access": {"roles": {}}})");
  refuses(R"({"models": [{"name": "a", "path": "", "keys": {}}], "limits": {}, "access": {"roles": {}}})");
  refuses(
      R"({"models": [{"name": "a", "path": "/a", "keys": {}}, {"name": "a", "path": "/a", "keys": {}}], "limits": {}, "access": {"roles": {}}})");
  EXPECT_FALSE(
      parse_configuration(R"({"models": [{"name": "a=b", "path": "/a", "keys": {}}], "limits": {}, "access": {"roles": {}}})")
          .ok());
}

TEST(FetchedText, ComesBack) {
  const auto back = parse_fetched(fetched_text({.path = "/cache/m-symbol.json", .bytes = 7, .warnings = {"one", "two"}}));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->path, "/cache/m-symbol.json");
  EXPECT_EQ(back->bytes, 7u);
  EXPECT_EQ(back->warnings, (std::vector<std::string>{"one", "two"}));
  const auto refused = parse_fetched(failure_text(Status(StatusCode::kNotFound, "https://host/m: 404")));
  EXPECT_EQ(refused.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(refused.status().message(), "https://host/m: 404");
}

TEST(FetchedText, IsCheckedAsAStrangers) {
  for (const char* text : {"", "[]", "{}", R"({"path": "relative", "bytes": 1, "warnings": []})",
                           R"({"path": "/a\u0000b", "bytes": 1, "warnings": []})",
                           R"({"path": "/a", "bytes": 1, "warnings": [1]})", R"({"failure": {"code": 0, "message": "x"}})"})
    EXPECT_EQ(parse_fetched(text).status().code(), StatusCode::kInternal) << text;
}

}  // namespace
}  // namespace shoal
