// Reads the attribute texts of one MXNet node as typed values.
#pragma once

#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/status.hpp"
#include "worker/graph/attributes.hpp"
#include "worker/import/mxnet/mxnet_symbol.hpp"

namespace shoal::worker {

using OptionalDims = std::vector<std::optional<std::int64_t>>;

/// Is the attribute none of its operator's? So are `__lr_mult__` and others that MXNet hides, and "weight_lr_mult", a hint for
/// the trainer.
bool is_hint(std::string_view key);

/// Reads each attribute that the operator knows, with the grammar of MXNet 1.9.1's parameter parser. After an error, all reads
/// return defaults. status() returns the first error; it names operator, node and attribute.
///   Threads  thread-compatible
class AttributeReader {
 public:
  explicit AttributeReader(const MxnetNode& node) : node_(node) {}

  static constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
  static constexpr std::int64_t kInt32Min = std::numeric_limits<std::int32_t>::min();

  /// True when the node has the attribute and it is not "None".
  bool has(const char* key) const;

  // If the attribute is missing, these return `missing`. Without `missing` that is an error.
  std::int64_t integer(const char* key, std::optional<std::int64_t> missing = {}, std::int64_t least = kInt32Min,
                       std::int64_t most = kInt32Max);
  /// None if the attribute is "None", which MXNet writes for some axes.
  std::optional<std::int64_t> optional_integer(const char* key, std::optional<std::int64_t> missing);
  double number(const char* key, std::optional<double> missing = {});
  float real(const char* key, std::optional<float> missing = {});  ///< a float32 field; a number beyond its range is an error
  bool flag(const char* key, bool missing);
  Dims tuple(const char* key, std::optional<Dims> missing = {}, std::int64_t least = kInt32Min);
  /// A tuple whose entries may be None.
  OptionalDims optional_tuple(const char* key, std::optional<OptionalDims> missing = {});
  std::vector<double> doubles(const char* key);                                               ///< a tuple, which must be there
  std::vector<float> reals(const char* key, std::optional<std::vector<float>> missing = {});  ///< a tuple; each as by real()
  std::size_t choice(const char* key, std::initializer_list<std::string_view> names, std::optional<std::size_t> missing = {});
  DType dtype(const char* key, std::optional<DType> missing = {});  ///< a name such as "float16"; "None" is as not given

  /// Marks attributes that have no effect at inference as read.
  void ignore(std::initializer_list<const char*> keys);

  void fail(const char* key, std::string_view why);       ///< "... attribute key='text' why"
  void fail_node(StatusCode code, std::string_view why);  ///< "Operator 'node': why"
  const Status& status() const { return status_; }
  /// The keys that were not read, without hints.
  std::vector<std::string> unread() const;

 private:
  const std::string* find(const char* key, bool required);

  const MxnetNode& node_;
  std::set<std::string, std::less<>> read_;
  Status status_;
};

/// Parses MXNet's tuples of integers: "(3, 3)", "[3,3]", "(3L,)", "3", "()". Empty when the text has another form.
std::optional<Dims> parse_tuple(std::string_view text);
/// As parse_tuple, but entries may be "None".
std::optional<OptionalDims> parse_optional_tuple(std::string_view text);
/// As parse_tuple, of numbers with fractions.
std::optional<std::vector<double>> parse_number_tuple(std::string_view text);

}  // namespace shoal::worker
