// WeightStore: the constants of a model version, in the forms its programs read, packed into one sealed memfd.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/segment/segment.hpp"
#include "shoal/result.hpp"

namespace shoal::worker {

/// What packed weights are good for: another model, build, instruction set or width needs its own.
struct WeightIdentity {
  std::uint64_t model_hash = 0;  ///< hash_graph()
  std::string text;              ///< build, device, library, instruction set, threads, first input shapes: compared as a whole
};

/// One constant in one form: "plain" (row-major), or the bytes of a library's memory descriptor.
struct WeightEntry {
  std::string key;  ///< "v12" or "n7.weights": the same for equal loads
  std::string form;
  std::uint64_t offset_bytes = 0, size_bytes = 0;
};

/// Collects entries while a model loads, then is sealed; or opened from what an equal load sealed. Opened or sealed it is
/// immutable.
///   Threads  thread-compatible
class WeightStore {
 public:
  using Fill = std::function<Status(std::span<std::byte> dst)>;
  static constexpr const char* kPlain = "plain";

  explicit WeightStore(WeightIdentity identity) : identity_(std::move(identity)) {}
  /// Errors  kFailedPrecondition: no packed weights, or of another model or build; kInvalidArgument: no memfd sealed as such
  static Result<std::unique_ptr<WeightStore>> open(WeightIdentity identity, UniqueFd packed);

  /// Index of that constant in that form; -1 when there is none.
  int find(const std::string& key, const std::string& form) const;
  /// Indices of all forms of that constant, in the order they were added.
  std::vector<int> forms_of(const std::string& key) const;
  const WeightEntry& entry(int index) const { return entries_[static_cast<std::size_t>(index)]; }
  bool is_sealed() const { return sealed_; }

  /// Adds an entry (or finds it); `fill` writes it at seal(). Only before.
  int add(const std::string& key, const std::string& form, std::uint64_t size_bytes, Fill fill);
  enum class Contents { kFilled, kBlank };
  /// Writes all entries into a new memfd, or leaves them 0 (where only time matters), seals it and maps it read-only.
  Status seal(Contents contents = Contents::kFilled);

  /// Null before seal().
  const std::byte* address(int index) const;
  std::shared_ptr<const Segment> segment() const { return segment_; }
  int fd() const { return fd_.get(); }  ///< -1 when there are no entries
  std::size_t size_bytes() const { return segment_ ? segment_->size_bytes() : 0; }

 private:
  Status read_table(std::span<const std::byte> packed);
  void index_entry(int index);

  WeightIdentity identity_;
  std::vector<WeightEntry> entries_;
  std::vector<Fill> fills_;
  std::map<std::string, std::vector<int>, std::less<>> by_key_;
  bool sealed_ = false;
  UniqueFd fd_;  ///< none, and no segment, when there are no entries
  std::shared_ptr<const Segment> segment_;
};

/// The GNU build id of this program, in hexadecimal; empty when it was linked without one.
std::string build_id();

}  // namespace shoal::worker
