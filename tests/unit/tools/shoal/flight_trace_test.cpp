#include "tools/shoal/flight_trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "shm/wire/flight.hpp"

namespace shoal::tool {
namespace {

using nlohmann::json;
using wire::FlightKind;
using wire::FlightRecord;

/// Events of one worker and what the daemon says of them.
struct Flight {
  std::vector<FlightRecord> records;
  json worker{{"model", "m"}, {"version", 1}, {"pid", 77}, {"incarnation", 5}, {"lanes", 2}, {"died_ns", nullptr}, {"what", ""}};

  void add(std::uint64_t us, FlightKind kind, std::uint64_t request, std::uint32_t value = 0, std::uint16_t lane = 0) {
    records.push_back({.sequence = records.size() + 1,
                       .time_ns = 1'000'000'000 + us * 1000,
                       .request = request,
                       .kind = kind,
                       .lane = lane,
                       .value = value});
  }
  Result<json> trace() {
    worker["events"] = records.size();
    return chrome_trace({{"now_ns", 2'000'000'000}, {"workers", {worker}}, {"left_out", json::array()}},
                        std::as_bytes(std::span(records)));
  }
  /// Those of one phase ("X" slices, "i" instants, "M" names).
  std::vector<json> of(const char* phase) {
    std::vector<json> found;
    const json events = trace().value().at("traceEvents");
    for (const json& event : events) {
      if (event.at("ph") == phase) found.push_back(event);
    }
    return found;
  }
};

TEST(ChromeTrace, ARequestIsASliceFromBegunToEnded) {
  Flight flight;
  flight.add(0, FlightKind::kReceived, 9, 0, 1);
  flight.add(10, FlightKind::kBegun, 9, 1, 1);
  flight.add(250, FlightKind::kEnded, 9, 0, 1);
  const auto slices = flight.of("X");
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0]["name"], "request 9");
  EXPECT_EQ(slices[0]["pid"], 77);
  EXPECT_EQ(slices[0]["tid"], 1);
  EXPECT_EQ(slices[0]["ts"], 10.0);
  EXPECT_EQ(slices[0]["dur"], 240.0);
  EXPECT_EQ(slices[0]["args"]["status"]["9"], "OK");
  EXPECT_EQ(flight.of("i").size(), 1u);
  const auto names = flight.of("M");
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0]["args"]["name"], "m 1 worker");
  EXPECT_EQ(names[1]["args"]["name"], "lane 1");
}

TEST(ChromeTrace, ABatchIsOneSliceWithItsRequests) {
  Flight flight;
  for (std::uint64_t request : {1, 2, 3}) flight.add(request, FlightKind::kBegun, request, 3);
  for (std::uint64_t request : {1, 2, 3}) flight.add(100 + request, FlightKind::kEnded, request, request == 2 ? 6 : 0);
  const auto slices = flight.of("X");
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0]["name"], "batch of 3");
  EXPECT_EQ(slices[0]["dur"], 102.0);
  EXPECT_EQ(slices[0]["args"]["requests"], (json{1, 2, 3}));
  EXPECT_EQ(slices[0]["args"]["status"]["2"], "CANCELLED");
}

TEST(ChromeTrace, WhatRanWhenTheWorkerDiedEndsWithIt) {
  Flight flight;
  flight.add(10, FlightKind::kBegun, 9, 1);
  EXPECT_EQ(flight.of("X").at(0)["args"]["unfinished"], "running");
  flight.worker["died_ns"] = 1'000'060'000;
  flight.worker["what"] = "signal 11";
  const auto slices = flight.of("X");
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0]["dur"], 50.0);
  EXPECT_EQ(slices[0]["args"]["unfinished"], "worker died");
  EXPECT_EQ(flight.of("M").at(0)["args"]["name"], "m 1 worker, died: signal 11");
}

TEST(ChromeTrace, CompilationsHaveATrackOfTheirOwn) {
  Flight flight;
  flight.add(0, FlightKind::kCompileBegun, 9, 1, wire::kNoLane);
  flight.add(5, FlightKind::kAttached, 0, 3, wire::kNoLane);
  flight.add(90, FlightKind::kCompileEnded, 9, 1, wire::kNoLane);
  ASSERT_EQ(flight.of("X").size(), 1u);
  EXPECT_EQ(flight.of("X")[0]["name"], "compile");
  EXPECT_NE(flight.of("X")[0]["tid"], flight.of("i")[0]["tid"]);
}

TEST(ChromeTrace, WhatDoesNotFitTogetherIsRefused) {
  Flight flight;
  flight.add(0, FlightKind::kBegun, 9, 1);
  flight.worker["events"] = 1;
  const auto bytes = std::as_bytes(std::span(flight.records));
  const json description{{"now_ns", 0}, {"workers", {flight.worker}}, {"left_out", json::array()}};
  EXPECT_TRUE(chrome_trace(description, bytes).ok());
  EXPECT_EQ(chrome_trace(description, bytes.first(31)).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(chrome_trace(json::object(), {}).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(chrome_trace({{"now_ns", 0}, {"workers", json::array()}}, bytes).status().code(), StatusCode::kDataLoss);
  json huge = description;
  huge["workers"][0]["events"] = ~std::uint64_t{0};
  EXPECT_EQ(chrome_trace(huge, bytes).status().code(), StatusCode::kDataLoss);
}

TEST(ChromeTrace, GarbageGivesATraceWhoseSlicesOfATrackDoNotOverlap) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    Flight flight;
    std::uint64_t now_us = 0;
    for (int i = 0; i < 400; ++i) {
      now_us += random() % 20;
      flight.add(now_us, static_cast<FlightKind>(random() % 13), random() % 5, static_cast<std::uint32_t>(random() % 4),
                 static_cast<std::uint16_t>(random() % 3 ? random() % 2 : random()));
    }
    std::map<std::pair<json, json>, double> ends;
    auto slices = flight.of("X");
    std::ranges::stable_sort(slices, {}, [](const json& slice) { return slice.at("ts").get<double>(); });
    EXPECT_GT(slices.size(), 5u);
    for (const json& slice : slices) {
      double& end = ends[{slice["pid"], slice["tid"]}];
      EXPECT_GE(slice["ts"].get<double>(), end);
      EXPECT_GE(slice["dur"].get<double>(), 0.0);
      end = slice["ts"].get<double>() + slice["dur"].get<double>() - 1e-6;
    }
  }
}

}  // namespace
}  // namespace shoal::tool
