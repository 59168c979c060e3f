// Kernels over memory that a client changes while they read it: bounds are read once.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "shoal/tensor.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/recurrent.hpp"
#include "worker/ops/sequence.hpp"
#include "worker/ops/softmax.hpp"

#if defined(__x86_64__)

namespace shoal::worker {
namespace {

/// A page whose content is `first` when it is read the first time, and `then` after that. Every reading instruction faults, runs
/// by itself, and is counted.
class ChangingPage {
 public:
  ChangingPage(std::int64_t first, std::int64_t then) : first_(first), then_(then) {
    page_ = static_cast<std::byte*>(::mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    current_ = this;
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_fault;
    ::sigaction(SIGSEGV, &action, &before_segv_);
    action.sa_sigaction = on_step;
    ::sigaction(SIGTRAP, &action, &before_trap_);
  }
  ~ChangingPage() {
    ::sigaction(SIGSEGV, &before_segv_, nullptr);
    ::sigaction(SIGTRAP, &before_trap_, nullptr);
    ::munmap(page_, size_);
  }
  ChangingPage(const ChangingPage&) = delete;
  ChangingPage& operator=(const ChangingPage&) = delete;
  std::byte* data() const { return page_; }
  int reads() const { return reads_; }

 private:
  static constexpr greg_t kTrapFlag = 0x100;
  static void on_fault(int, siginfo_t* info, void* context) {
    ChangingPage& page = *current_;
    auto* const at = static_cast<std::byte*>(info->si_addr);
    if (at < page.page_ || at >= page.page_ + page.size_) {  // a fault of the kernel's own
      ::sigaction(SIGSEGV, &page.before_segv_, nullptr);
      return;
    }
    ::mprotect(page.page_, page.size_, PROT_READ | PROT_WRITE);
    const std::int64_t value = page.reads_++ == 0 ? page.first_ : page.then_;
    std::memcpy(page.page_, &value, sizeof value);
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
  }
  static void on_step(int, siginfo_t*, void* context) {
    ::mprotect(current_->page_, current_->size_, PROT_NONE);
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  }

  static inline ChangingPage* current_ = nullptr;
  const std::size_t size_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::int64_t first_, then_;
  std::byte* page_ = nullptr;
  int reads_ = 0;
  struct sigaction before_segv_ {
  }, before_trap_{};
};

Tensor filled(DType dtype, const Shape& shape, float value) {
  Tensor tensor = Tensor::create(dtype, shape).value();
  if (dtype == DType::kFloat32) std::ranges::fill(tensor.values<float>(), value);
  return tensor;
}

TEST(ChangingMemory, SoftmaxReadsALengthOnce) {
  const Node node{.op = &ops::kSoftmax, .name = "softmax", .attributes = SoftmaxAttributes{.axis = 1, .use_length = true}};
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    for (const std::int64_t later : {std::int64_t{0x7fffffff}, std::int64_t{-1}}) {
      const Tensor data = filled(DType::kFloat32, {1, 8}, 1);
      Tensor shares = filled(DType::kFloat32, {1, 8}, -1);
      ChangingPage length(4, later);
      const std::array src{data.view(), TensorView{dtype, Shape{1}, length.data()}};
      std::array dst{shares.view()};
      ASSERT_TRUE(node.op->oracle(node, src, dst).ok());
      EXPECT_EQ(length.reads(), 1);
      EXPECT_EQ(shares.values<float>()[3], 0.25F);
      EXPECT_EQ(shares.values<float>()[4], 0);
    }
  }
}

TEST(ChangingMemory, SequencesReadALengthOnce) {
  const Tensor data = filled(DType::kFloat32, {4, 1}, 1);
  for (const Operator* const op : {&ops::kSequenceMask, &ops::kSequenceLast, &ops::kSequenceReverse}) {
    const Attributes attributes =
        op == &ops::kSequenceMask ? Attributes(SequenceMaskAttributes{}) : Attributes(SequenceAttributes{});
    const Node node{.op = op, .name = "sequence", .attributes = attributes};
    Tensor result = filled(DType::kFloat32, op == &ops::kSequenceLast ? Shape{1} : Shape{4, 1}, -1);
    for (const DType dtype : {DType::kInt32, DType::kInt64, DType::kFloat32}) {
      ChangingPage length(dtype == DType::kFloat32 ? 0x40400000 : 3, 0x7fffffff);
      const std::array src{data.view(), TensorView{dtype, Shape{1}, length.data()}};
      std::array dst{result.view()};
      ASSERT_TRUE(op->oracle(node, src, dst).ok());
      EXPECT_EQ(length.reads(), 1) << op->name;
      EXPECT_EQ(result.values<float>()[0], 1) << op->name;
    }
  }
}

TEST(ChangingMemory, RnnReadsALengthOnce) {
  const Node node{.op = &ops::kRnn,
                  .name = "rnn",
                  .attributes = RnnAttributes{.mode = RnnMode::kRelu, .layers = 2, .bidirectional = true, .has_lengths = true}};
  const Tensor data = filled(DType::kFloat32, {4, 1, 1}, 1), parameters = filled(DType::kFloat32, {18}, 1);
  const Tensor state = filled(DType::kFloat32, {4, 1, 1}, 1);
  Tensor result = filled(DType::kFloat32, {4, 1, 2}, -1);
  ChangingPage length(2, 0x7fffffff);
  const std::array src{data.view(), parameters.view(), state.view(), TensorView{DType::kInt64, Shape{1}, length.data()}};
  std::array dst{result.view()};
  ASSERT_TRUE(node.op->oracle(node, src, dst).ok());
  EXPECT_EQ(length.reads(), 1);
  EXPECT_GT(result.values<float>()[3], 0);
  EXPECT_EQ(result.values<float>()[4], 0);
}

// What is divided by was compared with 0 before.
TEST(ChangingMemory, DivisionReadsADivisorOnce) {
  const Node node{.op = &ops::kBinary, .name = "quotient", .attributes = BinaryAttributes{BinaryKind::kDiv}};
  Tensor number = Tensor::create(DType::kInt32, {1}).value(), quotient = Tensor::create(DType::kInt32, {1}).value();
  number.values<std::int32_t>()[0] = 6;
  ChangingPage divisor(2, 0);
  const std::array src{number.view(), TensorView{DType::kInt32, Shape{1}, divisor.data()}};
  std::array dst{quotient.view()};
  ASSERT_TRUE(node.op->oracle(node, src, dst).ok());
  EXPECT_EQ(divisor.reads(), 1);
  EXPECT_EQ(quotient.values<std::int32_t>()[0], 3);
}

}  // namespace
}  // namespace shoal::worker

#endif
