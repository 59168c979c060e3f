// WeightStore: the constants of a model version in the forms that its programs read, packed into one sealed memfd.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/segment/segment.hpp"
#include "shoal/result.hpp"
#include "worker/exec/weight_form.hpp"
#include "worker/passes/constant_chain.hpp"

namespace shoal::worker {

/// What packed weights can be used for. Another model, build, instruction set or width needs its own.
struct WeightIdentity {
  std::uint64_t model_hash = 0;  ///< hash_graph()
  std::string text;              ///< build, device, library, instruction set, threads, first input shapes: compared as a whole
};

/// One constant in one form.
struct WeightEntry {
  std::string key;  ///< ConstantChain::key(): the same for equal loads
  WeightForm form;
  std::uint64_t offset_bytes = 0, size_bytes = 0;
};

/// Writes a chain's result into an entry, in the entry's form. A plain function: all that differs is in the chain and the form.
using FormWriter = Status (*)(const ConstantChain& chain, const WeightForm& form, std::span<std::byte> dst);
/// Copies the bytes of the chain's source, in any type. There must be no transform, and the form's type is the source's.
///   Errors  kInternal: the entry has another size
Status write_source(const ConstantChain& chain, const WeightForm& form, std::span<std::byte> dst);

/// Collects entries while a model loads, and is then sealed; or opens weights that an equal load has sealed. Immutable once it is
/// opened or sealed.
///   Threads  thread-compatible
class WeightStore : public std::enable_shared_from_this<WeightStore> {
 public:
  explicit WeightStore(WeightIdentity identity) : identity_(std::move(identity)) {}
  /// Checks everything but the model's hash, which takes long to compute: call check_model() next.
  ///   identity  WeightIdentity::text
  ///   Errors    kFailedPrecondition: no packed weights, those of another build, or an entry that lies
  ///             outside the segment or on no border of 64 bytes;
  ///             kInvalidArgument: not a sealed memfd
  static Result<std::unique_ptr<WeightStore>> open(std::string identity, UniqueFd packed);
  /// Errors  kFailedPrecondition: these are the weights of a model with another hash
  Status check_model(std::uint64_t model_hash) const;

  /// Index of that constant in that form; -1 if there is none.
  int find(const std::string& key, const WeightForm& form) const;
  /// Indices of all forms of that constant, in the order they were added.
  std::vector<int> forms_of(const std::string& key) const;
  const WeightEntry& entry(int index) const { return entries_[static_cast<std::size_t>(index)]; }
  /// Opened weights were written by another process. So compare the size before an entry is read as so many bytes.
  ///   Errors  kFailedPrecondition: names the entry and both sizes
  Status check_size(int index, std::uint64_t size_bytes) const;
  bool is_sealed() const { return sealed_; }

  /// Adds an entry (or finds that of an equal chain and form); seal() calls `write`. Keeps the chain's constants alive until
  /// then. Not after seal(). Throws std::bad_alloc: nothing is added then.
  int add(const ConstantChain& chain, const WeightForm& form, std::uint64_t size_bytes, FormWriter write);
  std::size_t entry_count() const { return entries_.size(); }
  /// Takes back all entries but the first `count`. Not after seal().
  void forget_from(std::size_t count);
  enum class Contents { kFilled, kBlank };
  /// Writes all entries into a new memfd (or leaves them 0, for measuring time), seals it and maps it read-only. If that fails,
  /// the store is not sealed.
  Status seal(Contents contents = Contents::kFilled);

  /// Null before seal().
  const std::byte* address(int index) const;
  std::shared_ptr<const Segment> segment() const { return segment_; }
  int fd() const { return fd_.get(); }  ///< -1 if there are no entries
  std::size_t size_bytes() const { return segment_ ? segment_->size_bytes() : 0; }

 private:
  Status read_table(std::span<const std::byte> packed);
  /// Returns the size of the segment that holds all entries.
  std::uint64_t place_entries();
  /// Maps the memfd for as long as it writes: it cannot be sealed meanwhile.
  Status write_entries(const UniqueFd& fd, Contents contents) const;
  void write_table(std::span<std::byte> packed) const;
  void index_entry(int index);

  WeightIdentity identity_;
  std::vector<WeightEntry> entries_;
  struct Origin {
    ConstantChain chain;
    FormWriter write;
  };
  std::vector<Origin> origins_;  ///< per entry; empty after seal()
  std::map<std::string, std::vector<int>, std::less<>> by_key_;
  bool sealed_ = false;
  UniqueFd fd_;  ///< none, like the segment, if there are no entries
  std::shared_ptr<const Segment> segment_;
};

/// Takes back, at the end of its scope, what was added to a store that is not sealed; not after keep().
///   Threads  thread-bound
class AddedWeights {
 public:
  explicit AddedWeights(WeightStore& store) : store_(store), count_before_(store.entry_count()) {}
  ~AddedWeights() {
    if (!is_kept_ && !store_.is_sealed()) store_.forget_from(count_before_);
  }
  AddedWeights(const AddedWeights&) = delete;
  AddedWeights& operator=(const AddedWeights&) = delete;
  void keep() { is_kept_ = true; }

 private:
  WeightStore& store_;
  const std::size_t count_before_;
  bool is_kept_ = false;
};

/// The GNU build id of this program, in hexadecimal; empty if it has none.
std::string build_id();

}  // namespace shoal::worker
