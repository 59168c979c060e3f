// Work that an oracle kernel does as a whole, and that a device divides among its threads.
//
//   Function<T>(node, shapes of the inputs, shapes of the outputs)   what is known before a run
//     scratch_bytes()           memory that a run needs
//     run(operands, policy)     operands: the inputs, the outputs, the memory; an output that nobody reads is null
//   policy.ranges(count, grain, work, body)   calls body(begin, end) for ranges that together are 0 .. count
//   policy.vectorized(body)                   calls body(), which captures by value
//
// The function promises the same bits for every policy. Its templates take the policy, too: so each folder compiles its own.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/ops/elements.hpp"

namespace shoal::worker {

/// The policy of oracle kernels.
struct Undivided {
  template <typename Body>
  void ranges(std::int64_t count, std::int64_t, std::int64_t, const Body& body) const {
    if (count > 0) body(std::int64_t{0}, count);
  }
  template <typename Body>
  void vectorized(const Body& body) const {
    body();
  }
};

/// Arrays one behind the other in the memory of a run. Without memory it only counts the bytes.
class Scratch {
 public:
  static constexpr std::size_t kAlignment = 16;

  explicit Scratch(std::byte* memory = nullptr) : memory_(memory) {}
  template <typename Element>
  Element* take(std::int64_t count) {
    static_assert(alignof(Element) <= kAlignment && std::is_trivially_copyable_v<Element>);
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (static_cast<std::size_t>(count) * sizeof(Element) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<Element*>(at);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

/// The bytes of the arrays that a Room takes when it is made for these sizes.
template <typename Room>
std::size_t bytes_of_room(std::int64_t first, std::int64_t second) {
  Scratch scratch;
  Room(scratch, first, second);
  return scratch.bytes();
}

/// An OracleKernel made of a function. The first output has the type that decides.
template <template <typename> typename Function, typename List>
Status run_undivided(const Node& node, Sources src, Results dst) {
  std::vector<Shape> from, to;
  std::vector<std::byte*> operands;
  for (const TensorView& view : src) {
    from.push_back(view.shape);
    operands.push_back(view.data);
  }
  for (const TensorView& view : dst) {
    to.push_back(view.shape);
    operands.push_back(view.data);
  }
  return dispatch<List>(node, dst[0].dtype, [&]<typename T>() {
    const Function<T> function(node, from, to);
    std::vector<std::byte> scratch(function.scratch_bytes());
    operands.push_back(scratch.data());
    function.run(operands, Undivided());
    return Status();
  });
}

}  // namespace shoal::worker
