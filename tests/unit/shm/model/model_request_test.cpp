#include "shm/model/model_config.hpp"

#include <gtest/gtest.h>

#include "shm/base/format.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/says.hpp"
#include "tests/support/scratch_directory.hpp"

namespace shoal {
namespace {

using test::says;
using test::ScratchDirectory;

TEST(ModelArgument, ReadsNamePathAndKeys) {
  const auto request = parse_model_argument(
      "net=dir/resnet-50@7,workers=4,device=cpu-reference,preset=mnist,input=data:?x1x28x28:uint8,shape=data:1x1x28x28,"
      "shape=data:8x1x28x28,labels=names.txt");
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_EQ(request->name, "net");
  EXPECT_EQ(request->path, "dir/resnet-50@7");
  EXPECT_EQ(request->overrides.workers, 4);
  EXPECT_EQ(request->overrides.device, "cpu-reference");
  EXPECT_EQ(request->overrides.preprocess->order, "GRAY");
  EXPECT_EQ(request->overrides.inputs->at(0), (TensorSpec{"data", DType::kUInt8, {-1, 1, 28, 28}}));
  ASSERT_EQ(request->overrides.shapes->size(), 2u);
  EXPECT_EQ(request->overrides.shapes->at(1)[0].shape, Shape({8, 1, 28, 28}));
  EXPECT_EQ(request->overrides.labels_file, "names.txt");
  EXPECT_FALSE(request->overrides.threads);
}

TEST(ModelArgument, ReadsFractions) {
  const auto request = parse_model_argument("net=dir,max_delay_ms=0.5,golden_tolerance=1e-3,run_limit_ms=20");
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_EQ(request->overrides.max_delay_ms, 0.5);
  EXPECT_EQ(request->overrides.golden_tolerance, 1e-3);
  EXPECT_EQ(parse_model_argument("net=dir,max_delay_ms=2").value().overrides.max_delay_ms, 2);
}

TEST(ModelArgument, RefusesWhatItCannotRead) {
  for (const char* text :
       {"", "net", "net=", "=dir", "a b=dir", "net=dir,workers", "net=dir,workers=", "net=dir,workers=0", "net=dir,workers=four",
        "net=dir,workers=1.5", "net=dir,max_delay_ms=nan", "net=dir,wrokers=4", "net=dir,input=data", "net=dir,input=data:axb",
        "net=dir,input=data:1x2:float", "net=dir,shape=data:?x3", "net=dir,preset=imagnet"}) {
    const auto request = parse_model_argument(text);
    EXPECT_FALSE(request.ok()) << text;
    const std::string_view last = std::string_view(text).substr(std::string_view(text).rfind(',') + 1);
    EXPECT_TRUE(says(request.status().message(), {"'" + std::string(last) + "'"}));
  }
}

TEST(ModelArgument, ATextThatIsTooLongIsRefusedWithoutRepeatingIt) {
  std::string text = "net=dir";
  while (text.size() < 60'000) text += ",input=a:1";
  const Status status = parse_model_argument(text).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_LT(status.message().size(), 400u);
  EXPECT_TRUE(says(status.message(), {"'net=", std::to_string(text.size())}));
}

TEST(ModelArgument, ManyKeysTakeTimeAndMemoryInProportion) {
  const auto bytes_for = [](std::string_view key) {
    std::string text = "net=dir";
    while (text.size() < 16'000) text += key;
    const std::uint64_t before = test::allocated_bytes();
    EXPECT_TRUE(parse_model_argument(text).ok());
    return test::allocated_bytes() - before;
  };
  EXPECT_LT(bytes_for(",input=a:1"), 4u << 20);
  EXPECT_LT(bytes_for(",workers=1"), 4u << 20);
}

TEST(ModelArgument, AnErrorNamesOnlyTheWrongKey) {
  std::string text = "net=dir";
  while (text.size() < 8000) text += ",input=a:1";
  const Status status = parse_model_argument(text + ",workers=none").status();
  EXPECT_LT(status.message().size(), 400u);
  EXPECT_TRUE(says(status.message(), {"'net=dir'", "'workers=none'"}));
}

TEST(ModelArgument, AUrlThatHoldsASecretIsRefusedWithoutRepeatingIt) {
  for (const char* url : {"https://me:secret@host/m", "https://host/m?token=secret", "s3://key:secret@host/m"}) {
    const Status argument = parse_model_argument(format("net={},workers=2", url)).status();
    const Status configuration = parse_daemon_config(format("[models.net]\npath = \"{}\"", url), "d.toml", "/etc/shoal").status();
    for (const Status& status : {argument, configuration}) {
      EXPECT_TRUE(says(status.message(), {"'host'"}));
      EXPECT_FALSE(test::contains(status.message(), "secret")) << status.message();
    }
  }
}

TEST(DaemonConfig, ReadsModelsRelativeToItsDirectory) {
  const auto config =
      parse_daemon_config("[models.a]\npath = \"x\"\nworkers = 2\n[models.b]\npath = \"/y\"\n", "d.toml", "/etc/shoal");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  ASSERT_EQ(config->models.size(), 2u);
  EXPECT_EQ(config->models[0].path, "/etc/shoal/x");
  EXPECT_EQ(config->models[0].overrides.workers, 2);
  EXPECT_EQ(config->models[1].path, "/y");
  EXPECT_EQ(config->limits, ClientLimits());
  EXPECT_EQ(parse_daemon_config("[models.u]\npath = \"s3://bucket/m\"", "d.toml", "/etc/shoal").value().models[0].path,
            "s3://bucket/m");
  EXPECT_EQ(parse_daemon_config("[models.e]\npath = \"builtin:identity\"", "d.toml", "/etc/shoal").value().models[0].path,
            "builtin:identity");
}

TEST(DaemonConfig, ReadsTheLimitsOfClients) {
  const auto config = parse_daemon_config(
      "[limits]\nclient_requests = 7\nclient_bad_messages = 0\nconnections = 3\nconnection_rate = 9\n"
      "total_message_mb = 12\ntotal_arena_gb = 131072\nmodels = 5\n",
      "d.toml", ".");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->limits, (ClientLimits{.client_requests = 7,
                                          .total_message_mb = 12,
                                          .total_arena_gb = 131'072,
                                          .client_bad_messages = 0,
                                          .connections = 3,
                                          .connection_rate = 9,
                                          .models = 5}));
}

TEST(DaemonConfig, NamesTheKeyAndTheLineThatAreWrong) {
  const auto error = [](const std::string& text) { return parse_daemon_config(text, "d.toml", ".").status().message(); };
  EXPECT_TRUE(says(error("model = 1"), {"d.toml:1:", "'model'"}));
  EXPECT_TRUE(says(error("\n[models.a]\nworkers = 1"), {"d.toml:2:", "a", "path"}));
  EXPECT_TRUE(says(error("[models.a]\npath = \"x\"\nwrokers = 1"), {"d.toml:3:", "'wrokers'"}));
  EXPECT_TRUE(says(error("[models.a]\nworkers = 1\npath = 3"), {"d.toml:3:", "'path' must be a string"}));
  EXPECT_TRUE(says(error("[models." + std::string(101, 'n') + "]\npath = \"x\""), {"d.toml", "1 to 100 letters"}));
  EXPECT_TRUE(says(error("[models.\"a b\"]\npath = \"x\""), {"d.toml", "a b"}));
  EXPECT_TRUE(says(error("[models"), {"d.toml:1:"}));
  EXPECT_TRUE(says(error("models = 1"), {"d.toml:1:", "[models.NAME]"}));
  EXPECT_TRUE(says(error("[limits]\n\nclient_requets = 1"), {"d.toml:3:", "'limits.client_requets'", "client_requests"}));
  EXPECT_TRUE(says(error("[limits]\ntotal_arena_gb = 131073"), {"d.toml:2:", "'limits.total_arena_gb'", "131072"}));
  EXPECT_TRUE(says(error("[limits]\nconnections = -1"), {"d.toml:2:", "'limits.connections'", "from 0"}));
}

TEST(ResolveVersions, LetsTheRequestOverrideTheFile) {
  const ScratchDirectory files;
  files.write("net-symbol.json");
  files.write("net-0000.params");
  files.write("synset.txt", "cat\ndog\n");
  files.write("model.toml",
              "workers = 2\nthreads = 3\ninputs = [{name = \"data\", shape = [-1, 4]}]\nshapes = [{data = [2, 4]}]");
  const auto request = parse_model_argument("net=" + files.path() + ",workers=5,input=data:1x8");
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  const auto versions = resolve_versions(*request);
  ASSERT_TRUE(versions.ok()) << versions.status().to_string();
  ASSERT_EQ(versions->size(), 1u);
  EXPECT_EQ((*versions)[0].number, 1u);
  const auto& model = (*versions)[0].model;
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(model->config.workers, 5);
  EXPECT_EQ(model->config.threads, 3);
  EXPECT_EQ(model->config.inputs[0].shape, Shape({1, 8}));
  EXPECT_TRUE(model->config.shapes.empty()) << "shapes of the file were made for other inputs";
  EXPECT_EQ(model->labels, (std::vector<std::string>{"cat", "dog"}));
}

std::vector<std::uint64_t> numbers_of(const std::vector<ServedVersion>& versions) {
  std::vector<std::uint64_t> numbers;
  for (const ServedVersion& version : versions) numbers.push_back(version.number);
  return numbers;
}

TEST(ResolveVersions, TakesThePolicyOfTheRequestThenOfTheFileBesideTheVersions) {
  const ScratchDirectory files;
  for (const char* version : {"1", "2", "10"}) {
    files.write(std::string(version) + "/net-symbol.json");
    files.write(std::string(version) + "/net-0000.params");
  }
  const auto served = [&](const std::string& keys) {
    const auto request = parse_model_argument("net=" + files.path() + keys);
    EXPECT_TRUE(request.ok()) << request.status().to_string();
    const auto versions = resolve_versions(*request);
    EXPECT_TRUE(versions.ok()) << versions.status().to_string();
    return numbers_of(*versions);
  };
  using Numbers = std::vector<std::uint64_t>;
  EXPECT_EQ(served(""), Numbers{10});
  files.write("model.toml", "versions = \"latest:2\"\nworkers = 3\n");
  EXPECT_EQ(served(""), (Numbers{2, 10}));
  EXPECT_EQ(served(",versions=all"), (Numbers{1, 2, 10}));
  EXPECT_EQ(served(",versions=1:10"), (Numbers{1, 10}));
  EXPECT_EQ(served(",versions=2"), Numbers{2});
  files.write("model.toml", "versions = [10, 1]");
  EXPECT_EQ(served(""), (Numbers{1, 10}));
}

TEST(ResolveVersions, NamesTheModelAndTheVersionsThatExist) {
  const ScratchDirectory files;
  files.write("1/net-symbol.json");
  files.write("1/net-0000.params");
  files.write("2/readme");
  const auto missing = resolve_versions({"net", files.path(), {.versions = VersionPolicy{1, {1, 3}}}});
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(says(missing.status().message(), {"model 'net'", "version 3", "1, 2"}));
  const auto all = resolve_versions({"net", files.path(), {.versions = VersionPolicy{.latest = 0, .numbers = {}}}});
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_EQ(numbers_of(*all), (std::vector<std::uint64_t>{1, 2})) << "one that cannot be served says so itself";
  EXPECT_TRUE((*all)[0].model.ok());
  EXPECT_TRUE(says((*all)[1].model.status().message(), {"model 'net'", files.path("2")}));
  const auto one = resolve_versions({"net", files.path("1"), {.versions = VersionPolicy{1, {2}}}});
  EXPECT_TRUE(says(one.status().message(), {"no version 2", "no numbered"}));
  EXPECT_EQ(numbers_of(*resolve_versions({"net", files.path("1"), {.versions = VersionPolicy{1, {1}}}})),
            std::vector<std::uint64_t>{1});
  const auto nowhere = resolve_versions({"net", "/nonexistent/net", {}});
  ASSERT_TRUE(nowhere.ok());
  EXPECT_EQ((*nowhere)[0].model.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(says((*nowhere)[0].model.status().message(), {"model 'net'", "/nonexistent/net"}));
}

TEST(ParseModelArgument, ReadsRangesBucketsAndTheCache) {
  const auto request = parse_model_argument("net=path,cache_mb=8,buckets=1:2:8,input=data:?x3x32..64x1..");
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_EQ(request->overrides.cache_mb, 8);
  EXPECT_EQ(request->overrides.buckets, (std::vector<Buckets>{{.sizes = {1, 2, 8}}}));
  EXPECT_EQ(request->overrides.inputs->at(0).ranges[2], (DimRange{32, 64}));
  for (const char* wrong : {"buckets=8:1", "buckets=1:two", "input=data:1x9..3", "shape=data:1x3..4"})
    EXPECT_FALSE(parse_model_argument(std::string("net=path,") + wrong).ok()) << wrong;
}

}  // namespace
}  // namespace shoal
