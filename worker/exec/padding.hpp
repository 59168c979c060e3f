// Padding: requests of sizes between two buckets run in the program of the larger one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shm/model/buckets.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Sizes of the batches that joined requests run in, ascending: those of `buckets` for the batch, else powers of two, up to the
/// first that holds `max_batch` rows; `max_batch` itself where none does. None for 1.
std::vector<std::int64_t> joined_sizes(int max_batch, const std::vector<Buckets>& buckets);

/// May requests be joined to one batch?
///   declared  the inputs as the configuration has them, the model's order
///   concrete  some sizes of theirs
///   Errors    kInvalidArgument: an input whose first dimension is not open; kUnimplemented: a node that may mix the rows of a
///             batch, named
Status check_joinable(const Graph& graph, const std::vector<TensorSpec>& declared, const std::vector<TensorSpec>& concrete);

/// The batch is padded only where that is exactly right: every node on the way from the inputs to the outputs computes each row
/// of dimension 0 from the same row, so that rows of zeros change no other. Other dimensions are padded on the user's word.
///   Threads  immutable once made
class Padding {
 public:
  /// No buckets: nothing is padded.
  Padding() = default;
  ///   inputs      as the configuration declares them, the model's order: the batch is dimension 0 of those that leave it open
  ///   some_sizes  the same inputs, as the model can be compiled for
  ///   Errors      kInvalidArgument: an input, dimension or output that the model does not have, an output that does not follow
  ///               the dimension as `crop` says; kUnimplemented: a node that may mix the rows of a batch, named
  static Result<Padding> make(std::vector<Buckets> buckets, const Graph& graph, const std::vector<TensorSpec>& inputs,
                              const std::vector<TensorSpec>& some_sizes);

  /// The inputs to compile for: those given, or larger ones. Both in the model's order.
  std::vector<TensorSpec> pad(std::vector<TensorSpec> inputs) const;
  /// `program` for smaller inputs; itself when they are its own.
  ///   Errors  kInvalidArgument: an output that does not follow the dimension as `crop` says
  Result<std::shared_ptr<const Program>> fit(std::shared_ptr<const PlannedProgram> program,
                                             const std::vector<TensorSpec>& inputs) const;

 private:
  struct Rule {
    Buckets buckets;
    std::vector<std::size_t> inputs;  ///< whose `buckets.dim` is padded, together
  };
  std::vector<Rule> rules_;
};

}  // namespace shoal::worker
