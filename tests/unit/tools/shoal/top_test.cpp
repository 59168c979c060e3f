#include "tools/shoal/top.hpp"

#include <gtest/gtest.h>

namespace shoal::tool {
namespace {

using nlohmann::json;

json stats(std::uint64_t ok, std::uint64_t failed, const json& buckets, std::uint64_t copied_bytes = 0) {
  return {{"supervisor", {{"pid", 1}, {"directory", "/d"}, {"uptime_s", 12.0}, {"clients", 2}}},
          {"models",
           {{{"name", "m"},
             {"version", 1},
             {"state", "ready"},
             {"reason", ""},
             {"wanted_workers", 2},
             {"counts", {{"ok", ok}, {"failed", {{"OVERLOADED", failed}}}, {"worker_deaths", 3}}},
             {"copied", {{"requests", 1}, {"request_bytes", copied_bytes}, {"answers", 0}, {"answer_bytes", 1000}}},
             {"queue", {{"length", 4}, {"limit", 9}, {"running", 5}}},
             {"latency_ms", {{"total", {{"buckets", buckets}}}}},
             {"workers",
              {{{"pid", 77}, {"state", "ready"}, {"answered", ok}, {"held", 1}},
               {{"pid", -1}, {"state", "forking"}, {"answered", 0}, {"held", 0}}}}}}}};
}

TEST(Top, RatesAndPercentilesAreThoseOfTheInterval) {
  const TopSample before{.time_ns = 1'000'000'000,
                         .stats = stats(100, 1, {{1.0, 100}}),
                         .processes = {{77, {.cpu_ns = 5'000'000'000, .pss_bytes = 1}}}};
  const TopSample after{.time_ns = 3'000'000'000,
                        .stats = stats(160, 5, {{1.0, 110}, {2.0, 49}, {50.0, 1}}, 6000),
                        .processes = {{77, {.cpu_ns = 6'000'000'000, .pss_bytes = 2'000'000}}}};
  const json top = top_json(before, after);
  const json& model = top["models"][0];
  EXPECT_EQ(top["interval_s"], 2.0);
  EXPECT_EQ(model["requests_per_s"], 30.0);
  EXPECT_EQ(model["failed_per_s"], 2.0);
  EXPECT_EQ(model["copied_bytes_per_s"], 3000.0);
  EXPECT_EQ(model["p50_ms"], 2.0);
  EXPECT_EQ(model["p99_ms"], 50.0);
  EXPECT_EQ(model["workers_ready"], 1);
  EXPECT_EQ(model["workers"][0]["cpu"], 0.5);
  EXPECT_EQ(model["workers"][0]["pss_bytes"], 2'000'000);
  EXPECT_TRUE(model["workers"][1]["cpu"].is_null());
  const std::string text = top_text(top);
  EXPECT_NE(text.find("m 1    ready        30.0       2.0       2      50        4        5    3.0 kB      1/2       3\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("0.50  2.0 MB       160     1\n"), std::string::npos) << text;
}

TEST(Top, AnIntervalInWhichNothingHappenedHasNoPercentiles) {
  const TopSample sample{.time_ns = 1'000'000'000, .stats = stats(100, 0, {{1.0, 100}})};
  TopSample later = sample;
  later.time_ns += 1'000'000'000;
  const json model = top_json(sample, later)["models"][0];
  EXPECT_EQ(model["requests_per_s"], 0.0);
  EXPECT_TRUE(model["p99_ms"].is_null());
}

TEST(Top, AModelThatIsNewSinceTheLastLookCountsFromItsStart) {
  TopSample before{.time_ns = 0, .stats = stats(0, 0, json::array())};
  before.stats["models"] = json::array();
  const TopSample after{.time_ns = 1'000'000'000, .stats = stats(7, 0, {{3.0, 7}})};
  const json model = top_json(before, after)["models"][0];
  EXPECT_EQ(model["requests_per_s"], 7.0);
  EXPECT_EQ(model["p50_ms"], 3.0);
}

}  // namespace
}  // namespace shoal::tool
