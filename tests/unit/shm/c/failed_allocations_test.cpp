// A failed allocation is a status, and what the function would have given is null. And the C interface adds no allocation to a
// request.
#include <gtest/gtest.h>

#include "shm/c/handles.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/manual_client.hpp"

namespace shoal::c {
namespace {

using test::allocations;
using test::fail_allocation;
using test::fail_allocations_from;

class CAllocations : public ::testing::Test {
 protected:
  CAllocations() {
    EXPECT_EQ(shoal_client_model(client_, "m", 0, &model_), nullptr);
    EXPECT_EQ(shoal_tensor_create(SHOAL_FLOAT32, &size_, 1, &tensor_), nullptr);
    EXPECT_EQ(shoal_queue_create(client_, &queue_), nullptr);
    EXPECT_EQ(shoal_request_create(model_, &request_), nullptr);
    EXPECT_EQ(shoal_request_set_input_at(request_, 0, tensor_), nullptr);
  }
  ~CAllocations() override {
    shoal_request_free(request_);
    shoal_queue_free(queue_);
    shoal_tensor_free(tensor_);
    shoal_model_free(model_);
  }

  /// Lets each allocation of the call fail, once alone and once with all that follow.
  ///   call  returns its status; frees what it is given, and checks that it is given nothing with a failure
  template <typename Call>
  void expect_statuses(const Call& call) {
    for (const auto& fail : {fail_allocation, fail_allocations_from}) {
      test::for_each_allocation(0, [&](std::uint64_t number) {
        fail(number);
        shoal_status* const status = call();
        const bool has_failed = test::has_allocation_failed();
        fail_allocation(0);
        EXPECT_TRUE(!has_failed || shoal_status_code(status) == SHOAL_FAILED_PRECONDITION || status == nullptr)
            << shoal_status_message(status);
        EXPECT_TRUE(has_failed || status == nullptr) << shoal_status_message(status);
        shoal_status_free(status);
        return has_failed;
      });
    }
  }
  /// The same for a call that gives a handle.
  template <typename Handle, typename Call>
  void expect_statuses(void (*free)(Handle*), const Call& call) {
    expect_statuses([&] {
      Handle* handle = nullptr;
      shoal_status* const status = call(&handle);
      EXPECT_EQ(handle == nullptr, status != nullptr);
      free(handle);
      return status;
    });
  }

  const std::shared_ptr<test::ManualClient> core_ = std::make_shared<test::ManualClient>();
  Client cpp_client_{core_};
  const shoal_client* client_ = handle_of<shoal_client>(&cpp_client_);
  shoal_model* model_ = nullptr;
  shoal_tensor* tensor_ = nullptr;
  shoal_queue* queue_ = nullptr;
  shoal_request* request_ = nullptr;
  const std::int64_t size_ = 1;
};

TEST_F(CAllocations, ThatFailAreStatuses) {
  float number = 0;
  expect_statuses<shoal_tensor>(shoal_tensor_free,
                                [&](auto place) { return shoal_tensor_create(SHOAL_FLOAT32, &size_, 1, place); });
  expect_statuses<shoal_tensor>(shoal_tensor_free, [&](auto place) {
    return shoal_tensor_wrap(SHOAL_FLOAT32, &size_, 1, &number, sizeof number, nullptr, nullptr, place);
  });
  expect_statuses<shoal_tensor>(shoal_tensor_free, [&](auto place) { return shoal_tensor_share(tensor_, place); });
  expect_statuses<shoal_model>(shoal_model_free, [&](auto place) { return shoal_client_model(client_, "m", 0, place); });
  expect_statuses<shoal_model_info>(shoal_model_info_free,
                                    [&](auto place) { return shoal_client_describe(client_, "m", 0, place); });
  expect_statuses<shoal_model_info>(shoal_model_info_free, [&](auto place) { return shoal_model_describe(model_, place); });
  expect_statuses<shoal_request>(shoal_request_free, [&](auto place) { return shoal_request_create(model_, place); });
  expect_statuses<shoal_queue>(shoal_queue_free, [&](auto place) { return shoal_queue_create(client_, place); });
  const shoal_named_tensor input{nullptr, tensor_};
  expect_statuses<shoal_prediction>(shoal_prediction_free,
                                    [&](auto place) { return shoal_model_submit(model_, &input, 1, nullptr, place); });
}

TEST_F(CAllocations, ThatFailKeepTheDeleterFromBeingCalled) {
  float number = 0;
  int deletions = 0, failures = 0;
  const auto deleter = [](void*, void* arg) { ++*static_cast<int*>(arg); };
  test::for_each_allocation(1, [&](std::uint64_t count) {
    shoal_tensor* tensor = nullptr;
    fail_allocation(count);
    shoal_status_free(shoal_tensor_wrap(SHOAL_FLOAT32, &size_, 1, &number, sizeof number, deleter, &deletions, &tensor));
    const bool has_failed = test::has_allocation_failed();
    fail_allocation(0);
    EXPECT_EQ(tensor == nullptr, has_failed);
    EXPECT_EQ(deletions, 0);
    failures += has_failed;
    shoal_tensor_free(tensor);
    return has_failed;
  });
  EXPECT_EQ(deletions, 1);
  EXPECT_GT(failures, 0);
}

TEST_F(CAllocations, AWrongArgumentWithoutMemoryIsAStatus) {
  fail_allocations_from(1);
  shoal_status* const status = shoal_tensor_share(nullptr, nullptr);
  fail_allocation(0);
  EXPECT_EQ(shoal_status_code(status), SHOAL_FAILED_PRECONDITION);
  EXPECT_STREQ(shoal_status_message(status), "out of memory");
  shoal_status_free(status);
}

TEST_F(CAllocations, OfARequestThatIsUsedAgainAreThoseOfCpp) {
  if (!test::kCountsAllocations) GTEST_SKIP() << "no program replaces ThreadSanitizer's operator new";
  CompletionQueue queue(cpp_client_);
  Request request(cpp_client_.model("m").value());
  ASSERT_TRUE(request.set_input(0, object_of(tensor_)).ok());
  Completion completion;
  const auto in_cpp = [&] {
    ASSERT_TRUE(queue.submit(request, 1).ok());
    core_->answer();
    ASSERT_EQ(queue.next({&completion, 1}), 1u);
    ASSERT_TRUE(completion.request.outputs().ok());
  };
  const auto in_c = [&] {
    shoal_completion done{};
    std::size_t count = 0;
    ASSERT_EQ(shoal_queue_submit(queue_, request_, 1), nullptr);
    core_->answer();
    ASSERT_EQ(shoal_queue_next(queue_, &done, 1, SHOAL_FOREVER, &count), nullptr);
    ASSERT_NE(shoal_outputs_tensor(shoal_outcome_outputs(shoal_request_outcome(done.request)), 0), nullptr);
  };
  const auto allocations_of = [&](const auto& run) {
    for (int i = 0; i < 100; ++i) run();
    const std::uint64_t before = allocations();
    for (int i = 0; i < 100; ++i) run();
    return allocations() - before;
  };
  EXPECT_EQ(allocations_of(in_c), allocations_of(in_cpp));
}

}  // namespace
}  // namespace shoal::c
