#include "shm/c/call.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "shm/base/errors.hpp"

namespace shoal::c {
namespace {

using StatusPtr = std::unique_ptr<shoal_status, void (*)(shoal_status*)>;

template <typename Body>
StatusPtr called(Body&& body) {
  return {call(body), shoal_status_free};
}

TEST(CCall, SuccessIsNull) {
  EXPECT_EQ(call([] { return Status(); }), nullptr);
  EXPECT_EQ(shoal_status_code(nullptr), SHOAL_OK);
}

TEST(CCall, AFailureHasItsCodeMessageAndTime) {
  const auto status = called([] { return Ended(overloaded("full"), std::chrono::milliseconds(3)); });
  EXPECT_EQ(shoal_status_code(status.get()), SHOAL_OVERLOADED);
  EXPECT_STREQ(shoal_status_message(status.get()), "full");
  EXPECT_EQ(shoal_status_retry_after_ns(status.get()), 3'000'000);
}

TEST(CCall, NoExceptionLeavesIt) {
  const auto without_memory = [] { return called([]() -> Status { throw std::bad_alloc(); }); };
  const StatusPtr first = without_memory(), second = without_memory();  // each is freed, and is the same
  EXPECT_EQ(first.get(), second.get());
  EXPECT_EQ(shoal_status_code(first.get()), SHOAL_FAILED_PRECONDITION);
  EXPECT_STREQ(shoal_status_message(first.get()), "out of memory");
  const auto error = called([]() -> Status { throw Error(not_found("a file")); });
  EXPECT_EQ(shoal_status_code(error.get()), SHOAL_NOT_FOUND);
  EXPECT_STREQ(shoal_status_message(error.get()), "a file");
  const auto other = called([]() -> Status { throw std::length_error("too long"); });
  EXPECT_EQ(shoal_status_code(other.get()), SHOAL_INTERNAL);
  EXPECT_STREQ(shoal_status_message(other.get()), "too long");
}

TEST(CCall, CodesAndTypesAreThoseOfCpp) {
  EXPECT_EQ(SHOAL_INTERNAL, static_cast<int>(StatusCode::kInternal));
  EXPECT_EQ(SHOAL_BOOL, static_cast<int>(DType::kBool));
  EXPECT_EQ(SHOAL_MAX_RANK, kMaxRank);
  EXPECT_EQ(SHOAL_RAN_YES, static_cast<int>(Ran::kYes));
  for (int code = SHOAL_OK; code <= SHOAL_INTERNAL; ++code)
    EXPECT_EQ(shoal_code_name(code), status_code_name(static_cast<StatusCode>(code)));
  for (int dtype = SHOAL_FLOAT32; dtype <= SHOAL_BOOL; ++dtype)
    EXPECT_EQ(shoal_dtype_name(dtype), dtype_name(static_cast<DType>(dtype)));
}

TEST(CCall, AnOutcomeIsHandedOutWhereItLies) {
  Outcome outcome{.outputs = Tensors{{"y", Tensor::create(DType::kInt32, {2}).value()}}, .ran = Ran::kYes, .attempts = 2};
  outcome.retry_after = std::chrono::seconds(1);
  const shoal_outcome* const handle = handle_of<shoal_outcome>(&outcome);
  EXPECT_EQ(shoal_outcome_status(handle), nullptr);
  EXPECT_EQ(shoal_outcome_attempts(handle), 2u);
  const shoal_tensor* const tensor = shoal_outputs_tensor(shoal_outcome_outputs(handle), 0);
  EXPECT_EQ(shoal_tensor_data(tensor), outcome.outputs->front().tensor.view().data);
  outcome.outputs = overloaded("full");
  const StatusPtr status{shoal_outcome_status(handle), shoal_status_free};
  EXPECT_EQ(shoal_status_retry_after_ns(status.get()), 1'000'000'000);
  EXPECT_EQ(shoal_outcome_outputs(handle), nullptr);
}

}  // namespace
}  // namespace shoal::c
