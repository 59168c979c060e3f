#include <gtest/gtest.h>

#include <functional>
#include <type_traits>
#include <utility>

#include "shm/completion/pending_outcome.hpp"
#include "shoal/client.hpp"

namespace shoal {
namespace {

// What a temporary gives away is a value: a reference to it would dangle.
template <typename T>
constexpr bool is_value = !std::is_reference_v<T>;
static_assert(is_value<decltype(std::declval<Prediction>().get())>);
static_assert(is_value<decltype(std::declval<Prediction>().outcome())>);
static_assert(is_value<decltype(std::declval<Result<Tensors>>().value())>);
static_assert(is_value<decltype(*std::declval<Result<Tensors>>())>);
static_assert(is_value<decltype(std::declval<Result<Tensors>>().status())>);
static_assert(is_value<decltype(std::declval<Status>().message())>);

template <typename R>
concept HasArrow = requires(R&& result) {
  std::forward<R>(result).operator->();
};
static_assert(HasArrow<Result<Tensors>&> && !HasArrow<Result<Tensors>>);

/// Its outcome is there from the beginning, and changes when it is destroyed.
class Done final : public completion::PendingOutcome {
 public:
  ~Done() override { outcome_.batch = 99; }
  bool is_done() const override { return true; }
  void give_up() override {}
  void add_notice(std::shared_ptr<completion::Notice>) override {}
  std::shared_ptr<completion::ClientCore> core() override { return nullptr; }
  bool ready() override { return true; }
  bool wait_for(std::chrono::nanoseconds, const std::stop_token&) override { return true; }
  const Outcome& outcome() override { return outcome_; }
  void cancel() override {}

 private:
  Outcome outcome_{.outputs = Tensors{{"out", Tensor::create(DType::kFloat32, {2}).value()}}, .batch = 7};
};

Prediction submit() { return Prediction(std::make_shared<Done>()); }
Result<Tensors> answer() { return Tensors{{"out", Tensor::create(DType::kFloat32, {2}).value()}}; }
Result<Tensors> refusal() { return Status(StatusCode::kNotFound, "a message that is too long for the small buffer of a string"); }

TEST(Prediction, ATemporaryGivesItsOutcomeByValue) {
  const auto& outputs = submit().get();
  const auto& outcome = submit().outcome();
  ASSERT_EQ(outputs.value().size(), 1u);
  EXPECT_EQ(outputs.value()[0].tensor.size_bytes(), 8u);
  EXPECT_EQ(outcome.batch, 7);
}

TEST(Prediction, WithoutARequestIsReadyAndSaysSo) {
  Prediction made;
  Prediction moved = submit();
  const Prediction other = std::move(moved);
  for (const Prediction& none : {std::cref(made), std::cref(moved)}) {  // NOLINT(bugprone-use-after-move): what is tested
    EXPECT_TRUE(none.ready());
    EXPECT_TRUE(none.wait_for(std::chrono::hours(1)));
    none.cancel();
    EXPECT_EQ(none.get().status().code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(none.get().status().message().find("Prediction"), std::string::npos);
    EXPECT_EQ(none.outcome().ran, Ran::kNo);
  }
  EXPECT_EQ(Prediction().get().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(other.get().ok());
}

TEST(Result, ATemporaryGivesItsValueAndItsStatusByValue) {
  const auto& outputs = answer().value();
  EXPECT_EQ(outputs.at(0).name, "out");
  int count = 0;
  for (const NamedTensor& output : answer().value()) count += static_cast<int>(output.tensor.size_bytes());
  EXPECT_EQ(count, 8);
  const auto& status = refusal().status();
  const auto& message = refusal().status().message();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(message.substr(0, 9), "a message");
}

}  // namespace
}  // namespace shoal
