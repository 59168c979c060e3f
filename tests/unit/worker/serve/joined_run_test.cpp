// Several requests in one run: RequestRunner::answer_joined().
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <latch>
#include <new>
#include <thread>

#include "shm/base/errors.hpp"
#include "shm/wire/flight.hpp"
#include "tests/support/lane_parts.hpp"
#include "tests/unit/worker/exec/graph_builder.hpp"
#include "worker/engine/identity_model.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/softmax.hpp"

namespace shoal::worker {
namespace {

using test::kClient;
using testing::GraphBuilder;
using testing::noise;
using testing::spec;

constexpr std::uint64_t kBatchArenaBytes = std::uint64_t{1} << 20, kFirstId = 100;

/// What came back for one request.
struct Answer {
  wire::Reply reply;
  std::string text;
  std::vector<std::byte> output;  // of the frame or the slot
  StatusCode code() const { return static_cast<StatusCode>(reply.header.status); }
};

/// A lane on `model`, and requests of one input, each a Tensor.
class Batch {
 public:
  Batch(Model& model, std::vector<TensorSpec> inputs) : parts_("m", model, std::move(inputs)) {
    for (const char* label : {"input", "output"}) fds_.push_back(create_memfd(label, kBatchArenaBytes).value());
    output_.emplace(Segment::map(fds_[1], Segment::Access::kReadWrite).value());
    attach();
  }

  void attach() { EXPECT_TRUE(parts_.arenas.attach(kClient, fds_).ok()); }
  void detach() { parts_.arenas.detach(kClient); }

  /// Its input travels as a frame; its output does, too, unless `slot` (64-byte units from the arena's start) is given.
  wire::Request& add(const Tensor& input, int slot = -1) {
    wire::Request& request = requests_.emplace_back(test::framed_request(kFirstId + requests_.size(), input));
    request.header.seq = requests_.size();
    request.header.client_id = kClient;
    if (slot >= 0)
      request.outputs = {wire::WireTensor{.offset_bytes = static_cast<std::uint64_t>(slot) * 64, .capacity_bytes = 4096}};
    inputs_.push_back(input);
    return request;
  }

  bool run_two(const Tensor& input) {  // and none of those that were added before
    requests_.clear();
    inputs_.clear();
    for (int i = 0; i < 2; ++i) add(input);
    return run();
  }

  /// False when they are to run singly; answers() is empty then.
  bool run() {
    test::RequestMessages messages;
    for (std::size_t i = 0; i < requests_.size(); ++i) messages.add(requests_[i], inputs_[i]);
    answers_.clear();
    return runner_.answer_joined(messages.all(), [this](Frames reply) { keep(reply); });
  }
  std::vector<Answer>& answers() { return answers_; }
  test::LaneParts& parts() { return parts_; }

 private:
  void keep(Frames frames) {
    Answer& answer = answers_.emplace_back();
    answer.reply = wire::decode_reply(frames[0]).value();
    if (frames.size() > 1) answer.text.assign(reinterpret_cast<const char*>(frames[1].data()), frames[1].size());
    if (answer.reply.outputs.empty()) return;
    const wire::WireTensor& output = answer.reply.outputs[0];
    const bool is_frame = output.location == static_cast<std::uint8_t>(wire::Location::kFrame);
    const auto bytes = is_frame ? frames[2] : output_->bytes().subspan(output.offset_bytes, output.size_bytes);
    answer.output.assign(bytes.begin(), bytes.end());
  }

  std::vector<UniqueFd> fds_;
  test::LaneParts parts_;
  RequestRunner runner_{parts_.environment, 0, parts_.line, parts_.bell};
  std::optional<Segment> output_;
  std::vector<wire::Request> requests_;
  std::vector<Tensor> inputs_;
  std::vector<Answer> answers_;
};

Tensor filled(const Shape& shape, float value) {
  Tensor tensor = Tensor::create(DType::kFloat32, shape).value();
  for (float& each : tensor.values<float>()) each = value;
  return tensor;
}

bool is_same(const std::vector<std::byte>& bytes, const Tensor& tensor) {
  return bytes.size() == tensor.size_bytes() && std::memcmp(bytes.data(), tensor.view().data, bytes.size()) == 0;
}

/// The identity model, which shows the sizes that it ran and does what a test wants at that moment.
class WatchedModel final : public IdentityModel {
 public:
  explicit WatchedModel(int max_batch) : IdentityModel(max_batch) {}
  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) override {
    std::vector<TensorSpec> made_for(inputs.begin(), inputs.end());
    if (other_rows > 0) made_for[0].shape[0] = other_rows;
    SHOAL_ASSIGN_OR_RETURN(auto identity, IdentityModel::program(made_for));
    const auto made = std::make_shared<const Watched>(std::move(identity), *this);
    last_made = made;
    return std::shared_ptr<const Program>(made);
  }
  std::vector<std::int64_t> sizes;
  std::int64_t other_rows = 0;  ///< of a program that is not for the inputs that were asked for; 0: it is for them
  std::weak_ptr<const Program> last_made;
  std::function<Status()> in_run = [] { return Status(); };

 private:
  class Watched final : public Program {
   public:
    Watched(std::shared_ptr<const Program> identity, WatchedModel& model) : identity_(std::move(identity)), model_(model) {
      inputs_ = identity_->inputs();
      outputs_ = identity_->outputs();
    }
    Status run(Context& context, std::span<const TensorView> src, std::span<TensorView> dst) const override {
      model_.sizes.push_back(inputs_[0].shape[0]);
      SHOAL_RETURN_IF_ERROR(model_.in_run());
      return identity_->run(context, src, dst);
    }

   private:
    std::shared_ptr<const Program> identity_;
    WatchedModel& model_;
  };
};

class JoinedRun : public ::testing::Test {
 protected:
  WatchedModel model_{8};
  Batch batch_{model_, {spec("data", {-1, 4})}};
};

TEST_F(JoinedRun, EachGetsItsOwnRowsAndKnowsHowManyRanTogether) {
  const Tensor inputs[] = {filled({1, 4}, 1), filled({3, 4}, 2), filled({1, 4}, 3)};
  batch_.add(inputs[0]);
  batch_.add(inputs[1], 2);
  batch_.add(inputs[2], 6);
  ASSERT_TRUE(batch_.run());
  EXPECT_EQ(model_.sizes, std::vector<std::int64_t>{8});  // the next allowed size above 5
  ASSERT_EQ(batch_.answers().size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const Answer& answer = batch_.answers()[i];
    EXPECT_EQ(answer.code(), StatusCode::kOk) << answer.text;
    EXPECT_TRUE(is_same(answer.output, inputs[i])) << i;
    EXPECT_EQ(wire::shape_of(answer.reply.outputs[0]), inputs[i].shape());
    EXPECT_EQ(answer.reply.header.request_id, kFirstId + i);
    EXPECT_EQ(answer.reply.header.batch, 3);
    EXPECT_EQ(answer.reply.header.ran, static_cast<std::uint8_t>(Ran::kYes));
    EXPECT_GT(answer.reply.header.compute_ns, 0u);
  }
  EXPECT_EQ(batch_.parts().line.completed, 3u);
}

TEST_F(JoinedRun, TheStatusLineNamesTheFirstAndHowMany) {
  std::uint64_t request = 0, count = 0;
  model_.in_run = [&] {
    request = batch_.parts().line.running_request;
    count = batch_.parts().line.running_count;
    return Status();
  };
  for (int i = 0; i < 3; ++i) batch_.add(filled({1, 4}, 1));
  ASSERT_TRUE(batch_.run());
  EXPECT_EQ(request, kFirstId);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(batch_.parts().line.running_request, 0u);
}

TEST_F(JoinedRun, WhileArenasAreOnTheirWayTheStatusLineNamesNobody) {
  batch_.add(filled({1, 4}, 1), 0);
  batch_.add(filled({1, 4}, 2), 1);
  batch_.detach();
  std::uint64_t named = 0;
  std::jthread control([&] {
    for (int i = 0; i < 50; ++i) {
      named |= batch_.parts().line.running_request.load();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    batch_.attach();
  });
  EXPECT_TRUE(batch_.run());
  control.join();
  EXPECT_EQ(named, 0u);
}

TEST_F(JoinedRun, OneWithWrongInputsIsToldSoAndTheOthersRun) {
  batch_.add(filled({1, 4}, 1));
  batch_.add(filled({1, 5}, 2));
  batch_.add(filled({1, 4}, 3)).inputs[0].dtype = static_cast<std::uint8_t>(DType::kInt32);
  batch_.add(filled({1, 4}, 4)).outputs = {wire::WireTensor{.offset_bytes = kBatchArenaBytes, .capacity_bytes = 64}};
  batch_.add(filled({1, 4}, 5));
  ASSERT_TRUE(batch_.run());
  ASSERT_EQ(batch_.answers().size(), 5u);
  EXPECT_TRUE(is_same(batch_.answers()[0].output, filled({1, 4}, 1)));
  for (const std::size_t wrong : {1, 2, 3}) {
    EXPECT_EQ(batch_.answers()[wrong].code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_TRUE(batch_.answers()[wrong].reply.outputs.empty());
    EXPECT_EQ(batch_.answers()[wrong].reply.header.ran, static_cast<std::uint8_t>(Ran::kNo)) << wrong;
    EXPECT_EQ(batch_.answers()[wrong].reply.header.compute_ns, 0u) << wrong;
  }
  EXPECT_NE(batch_.answers()[1].text.find("input 'data' has shape 1x5"), std::string::npos) << batch_.answers()[1].text;
  EXPECT_NE(batch_.answers()[3].text.find("the slot of output 'data_output' lies outside"), std::string::npos);
  EXPECT_TRUE(is_same(batch_.answers()[4].output, filled({1, 4}, 5)));
}

TEST_F(JoinedRun, ACancelledMemberDropsOut) {
  for (int i = 0; i < 3; ++i) batch_.add(filled({1, 4}, static_cast<float>(i)));
  batch_.parts().cancelled.add(kFirstId + 1);
  ASSERT_TRUE(batch_.run());
  EXPECT_EQ(model_.sizes, std::vector<std::int64_t>{2});
  EXPECT_EQ(batch_.answers()[1].code(), StatusCode::kCancelled);
  EXPECT_EQ(batch_.answers()[1].reply.header.ran, static_cast<std::uint8_t>(Ran::kNo));
  EXPECT_TRUE(is_same(batch_.answers()[2].output, filled({1, 4}, 2)));
}

TEST_F(JoinedRun, EndsEarlyOnlyWhenAllMembersAreCancelled) {
  for (int i = 0; i < 2; ++i) batch_.add(filled({1, 4}, 1));
  std::uint64_t next = kFirstId;
  model_.in_run = [&] {
    batch_.parts().cancelled.add(next++);  // one in each run
    return Status();
  };
  ASSERT_TRUE(batch_.run());
  EXPECT_EQ(batch_.answers()[1].code(), StatusCode::kOk);
  model_.in_run = [&] {
    batch_.parts().cancelled.add(kFirstId);
    batch_.parts().cancelled.add(kFirstId + 1);
    return Status();
  };
  batch_.add(filled({1, 4}, 1));
  ASSERT_TRUE(batch_.run());  // the third is still wanted
}

TEST_F(JoinedRun, AllCancelledWhileItRunsIsAnsweredSoAndNotRunAgain) {
  for (int i = 0; i < 2; ++i) batch_.add(filled({1, 4}, 1));
  model_.in_run = [&] {
    for (const std::uint64_t id : {kFirstId, kFirstId + 1}) batch_.parts().cancelled.add(id);
    return Status();
  };
  ASSERT_TRUE(batch_.run());
  for (const Answer& answer : batch_.answers()) {
    EXPECT_EQ(answer.code(), StatusCode::kCancelled);
    EXPECT_EQ(answer.reply.header.ran, static_cast<std::uint8_t>(Ran::kMaybe));
  }
}

TEST_F(JoinedRun, AQuarantinedMemberIsPoisonAndTheOthersRun) {
  const Tensor bad = filled({1, 4}, 666);
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(hash_inputs({&bad.view(), 1})));
  ASSERT_TRUE(batch_.parts().quarantine.replace(hash, 1).ok());
  batch_.add(filled({1, 4}, 1));
  batch_.add(bad);
  batch_.add(filled({1, 4}, 2));
  ASSERT_TRUE(batch_.run());
  EXPECT_EQ(batch_.answers()[1].code(), StatusCode::kPoison);
  EXPECT_TRUE(is_same(batch_.answers()[2].output, filled({1, 4}, 2)));
}

TEST_F(JoinedRun, WhateverFailsTheyRunSinglyAndNothingWasSent) {
  for (int i = 0; i < 2; ++i) batch_.add(filled({1, 4}, 1));
  model_.in_run = []() -> Status { throw std::bad_alloc(); };
  EXPECT_FALSE(batch_.run());
  model_.in_run = [] { return internal_error("no"); };
  EXPECT_FALSE(batch_.run());
  EXPECT_TRUE(batch_.answers().empty());
  EXPECT_EQ(batch_.parts().line.running_request, 0u);
  model_.in_run = [] { return Status(); };
  EXPECT_TRUE(batch_.run());
}

TEST_F(JoinedRun, AProgramForOtherInputsGetsNone) {
  for (int i = 0; i < 4; ++i) batch_.add(filled({1, 4}, 1));
  model_.other_rows = 1;
  EXPECT_FALSE(batch_.run());
  EXPECT_TRUE(model_.sizes.empty());
}

// The cache may have evicted it, so nobody counts its memory.
TEST_F(JoinedRun, WithoutMemoryItsProgramIsGivenBack) {
  for (int i = 0; i < 2; ++i) batch_.add(filled({1, 4}, 1));
  ASSERT_TRUE(batch_.run());
  EXPECT_FALSE(model_.last_made.expired());
  model_.in_run = []() -> Status { throw std::bad_alloc(); };
  EXPECT_FALSE(batch_.run());
  EXPECT_TRUE(model_.last_made.expired());
}

TEST_F(JoinedRun, TooManyRowsRowsOfNothingAndASingleOneAreNoBatch) {
  batch_.add(filled({8, 4}, 1));
  EXPECT_FALSE(batch_.run());
  batch_.add(filled({1, 4}, 1));
  EXPECT_FALSE(batch_.run());
  Batch empty(model_, {spec("data", {-1, 4})});
  for (int i = 0; i < 2; ++i) empty.add(filled({0, 4}, 1));
  EXPECT_FALSE(empty.run());
  IdentityModel alone;
  Batch unbatched(alone, {spec("data", {-1, 4})});
  for (int i = 0; i < 2; ++i) unbatched.add(filled({1, 4}, 1));
  EXPECT_FALSE(unbatched.run());
}

/// Compiles only when it is told to.
class ColdModel final : public IdentityModel {
 public:
  ColdModel() : IdentityModel(4) {}
  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec> inputs) override {
    told_.wait();
    return IdentityModel::program(inputs);
  }
  Result<std::shared_ptr<const Program>> find_program(std::span<const TensorSpec>) override {
    return std::shared_ptr<const Program>();
  }
  void compile() { told_.count_down(); }

 private:
  std::latch told_{1};
};

TEST(JoinedRunProgram, IsCompiledWhileItsRequestsRunSingly) {
  ColdModel model;
  Batch batch(model, {spec("data", {-1, 4})});
  for (int i = 0; i < 2; ++i) batch.add(filled({1, 4}, 1));
  EXPECT_FALSE(batch.run());
  model.compile();
  while (batch.parts().program_line.compiling > 0) std::this_thread::yield();
  EXPECT_TRUE(batch.run());
  EXPECT_EQ(batch.parts().program_line.misses, 1u);
}

/// Compiles when it is told to, and fails then. It counts how often.
class BrokenModel final : public IdentityModel {
 public:
  BrokenModel() : IdentityModel(4) {}
  Result<std::shared_ptr<const Program>> program(std::span<const TensorSpec>) override {
    told_.wait();
    ++compilations;
    return internal_error("this model has no programs");
  }
  Result<std::shared_ptr<const Program>> find_program(std::span<const TensorSpec>) override {
    return std::shared_ptr<const Program>();
  }
  void compile() { told_.count_down(); }
  std::atomic<int> compilations{0};

 private:
  std::latch told_{1};
};

TEST(JoinedRunProgram, IsOrderedOnceAlthoughBatchesOfSeveralShapesAlternate) {
  constexpr int kShapes = 3;
  const auto alternate = [](Batch& batch) {
    for (int round = 0; round < 3; ++round) {
      for (int width = 1; width <= kShapes; ++width) EXPECT_FALSE(batch.run_two(filled({1, width}, 1)));
    }
  };
  BrokenModel model;
  Batch batch(model, {spec("data", {-1, -1})});
  alternate(batch);
  EXPECT_EQ(batch.parts().program_line.misses, std::uint64_t{kShapes}) << "ordered again while it is compiled";
  model.compile();
  while (batch.parts().program_line.compiling > 0) std::this_thread::yield();
  alternate(batch);
  EXPECT_EQ(batch.parts().program_line.misses, std::uint64_t{kShapes}) << "ordered again although it failed";
  EXPECT_EQ(model.compilations, kShapes);
}

// A client can send any number of shapes.
TEST(JoinedRunProgram, OldOrdersAreForgotten) {
  constexpr int kMany = 40;
  BrokenModel model;
  model.compile();
  Batch batch(model, {spec("data", {-1, -1})});
  const auto run = [&](int width) {
    EXPECT_FALSE(batch.run_two(filled({1, width}, 1)));
    while (batch.parts().program_line.compiling > 0) std::this_thread::yield();
  };
  for (int width = 1; width <= kMany; ++width) run(width);
  run(kMany);
  EXPECT_EQ(model.compilations, kMany);
  run(1);
  EXPECT_EQ(model.compilations, kMany + 1);
}

// ---- real models ----

constexpr double kSumTolerance = 1e-5;  // other sizes may sum in another order

Graph convolutions() {
  GraphBuilder b;
  const ValueId features = b.activation(b.batch_norm(b.conv(b.input("data"), 3, 16, 3), 16));
  b.output(b.node("Softmax", {b.fully_connected(b.node("Flatten", {b.global_average(features)}), 16, 10)}, SoftmaxAttributes{}));
  return b.graph();
}

Graph fully_connected() {
  GraphBuilder b;
  const ValueId hidden = b.activation(b.fully_connected(b.input("data"), 64, 128));
  b.output(b.fully_connected(hidden, 128, 10));
  b.output(hidden);
  return b.graph();
}

void expect_joined_like_single(const Graph& graph, const Shape& row, const std::string& device) {
  Shape open = row;
  open[0] = -1;
  const auto model =
      Model::load(
          graph, {.device = device, .input_sets = {{spec("data", row)}}, .declared_inputs = {spec("data", open)}, .max_batch = 8})
          .value();
  EXPECT_EQ(model->program_counters().pinned, 4u);  // 1, 2, 4, 8
  Batch batch(*model, {spec("data", open)});
  Shape five = row, eight = row;
  five[0] = 5;
  eight[0] = 8;
  const Tensor all = noise(five), padded = Tensor::create(DType::kFloat32, eight).value();
  std::memcpy(padded.view().data, all.view().data, all.size_bytes());
  const std::size_t row_bytes = all.size_bytes() / 5;
  const auto run = [&](const Tensor& input) {
    const auto program = model->program(std::vector{spec("data", input.shape())}).value();
    Tensor output = Tensor::create(DType::kFloat32, program->outputs()[0].shape).value();
    std::vector<Tensor> others;
    std::vector<TensorView> dst{output.view()};
    for (std::size_t i = 1; i < program->outputs().size(); ++i) {
      others.push_back(Tensor::create(DType::kFloat32, program->outputs()[i].shape).value());
      dst.push_back(others.back().view());
    }
    Context context;
    EXPECT_TRUE(program->run(context, std::vector{input.view()}, dst).ok());
    return output;
  };
  std::vector<Tensor> single;
  for (std::size_t i = 0; i < 5; ++i) {
    Tensor one = Tensor::create(DType::kFloat32, row).value();
    std::memcpy(one.view().data, all.view().data + i * row_bytes, row_bytes);
    batch.add(one, static_cast<int>(i) * 64);
    single.push_back(run(one));
  }
  ASSERT_TRUE(batch.run());
  const Tensor direct = run(padded);
  for (std::size_t i = 0; i < 5; ++i) {
    Answer& answer = batch.answers()[i];
    ASSERT_EQ(answer.code(), StatusCode::kOk) << answer.text;
    ASSERT_EQ(answer.output.size(), single[i].size_bytes());
    EXPECT_EQ(std::memcmp(answer.output.data(), direct.view().data + i * answer.output.size(), answer.output.size()), 0)
        << device << ": a joined run is not the run of that batch";
    const Tensor joined({DType::kFloat32, single[i].shape(), answer.output.data()}, nullptr);
    EXPECT_LE(testing::relative_error(joined, single[i]), kSumTolerance) << i;
  }
}

TEST(JoinedRunAnswers, AreThoseOfSingleRunsAndTheBitsOfThatBatch) {
  for (const char* device : {"cpu", "cpu-reference"}) {
    expect_joined_like_single(convolutions(), {1, 3, 16, 16}, device);
    expect_joined_like_single(fully_connected(), {1, 64}, device);
  }
}

TEST(MaxBatch, RefusesAModelWhoseRowsAreMixedAndNamesTheNode) {
  const auto refusal = [](const Graph& graph, const Shape& declared) {
    return Model::load(graph,
                       {.input_sets = {{spec("data", {1, 3, 4})}}, .declared_inputs = {spec("data", declared)}, .max_batch = 4})
        .status();
  };
  GraphBuilder over_batch;
  over_batch.output(over_batch.node("Softmax", {over_batch.input("data")}, SoftmaxAttributes{.axis = 0}));
  const Status mixed = refusal(over_batch.graph(), {-1, 3, 4});
  EXPECT_EQ(mixed.code(), StatusCode::kUnimplemented);
  EXPECT_NE(mixed.message().find("'max_batch': Softmax 'Softmax"), std::string::npos) << mixed.message();
  GraphBuilder good;
  good.output(good.activation(good.input("data")));
  const Status fixed = refusal(good.graph(), {1, 3, 4});
  EXPECT_EQ(fixed.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(fixed.message().find("input 'data' is 1x3x4"), std::string::npos) << fixed.message();
  EXPECT_TRUE(refusal(good.graph(), {-1, 3, 4}).ok());
  GraphBuilder one_row;
  one_row.output(one_row.node("Reshape", {one_row.input("data")}, ReshapeAttributes{.shape = {1, 12}}));
  const Status of_one = refusal(one_row.graph(), {-1, 3, 4});
  EXPECT_NE(of_one.message().find("'max_batch': Reshape 'Reshape"), std::string::npos) << of_one.message();
}

}  // namespace
}  // namespace shoal::worker
