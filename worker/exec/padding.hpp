// Padding: a request whose size lies between two buckets runs in the program of the larger one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shm/model/buckets.hpp"
#include "worker/exec/planned_program.hpp"
#include "worker/graph/graph.hpp"

namespace shoal::worker {

/// Sizes of the batches that joined requests run in, ascending: the sizes of `buckets` for the batch, or else powers of two, up
/// to the first that holds `max_batch` rows; `max_batch` itself if none does. Empty for max_batch = 1.
std::vector<std::int64_t> joined_sizes(int max_batch, const std::vector<Buckets>& buckets);

/// May requests be joined to one batch?
///   declared  the inputs as the configuration has them, in the model's order
///   concrete  the same inputs with some valid sizes
///   Errors    kInvalidArgument: an input whose first dimension is not open; kUnimplemented: a node that may mix the rows of a
///             batch, named
Status check_joinable(const Graph& graph, const std::vector<TensorSpec>& declared, const std::vector<TensorSpec>& concrete);

/// The batch is padded only if that is exactly right: every node between the inputs and the outputs computes each row of
/// dimension 0 from the same row, so rows of zeros change no other row. For other dimensions the configuration is trusted.
///   Threads  immutable once made
class Padding {
 public:
  /// Without buckets: nothing is padded.
  Padding() = default;
  ///   inputs      as the configuration declares them, in the model's order; the batch is dimension 0 of those that leave it open
  ///   some_sizes  the same inputs with sizes that the model can be compiled for
  ///   Errors      kInvalidArgument: an input, dimension or output that the model does not have, an output that does not follow
  ///               the dimension as `crop` says; kUnimplemented: a node that may mix the rows of a batch, named
  static Result<Padding> make(std::vector<Buckets> buckets, const Graph& graph, const std::vector<TensorSpec>& inputs,
                              const std::vector<TensorSpec>& some_sizes);

  /// The inputs to compile for: the given ones, or larger ones. Both in the model's order.
  std::vector<TensorSpec> pad(std::vector<TensorSpec> inputs) const;
  /// Makes a program for smaller inputs of `program`, or returns `program` if they are its own.
  std::shared_ptr<const Program> fit(std::shared_ptr<const PlannedProgram> program, const std::vector<TensorSpec>& inputs) const;

 private:
  struct Rule {
    Buckets buckets;
    std::vector<std::size_t> inputs;              ///< their `buckets.dim` is padded to the same size
    std::map<std::string, std::int64_t> lengths;  ///< of outputs that are cut: elements for each element of that dimension
  };
  std::vector<Rule> rules_;
};

}  // namespace shoal::worker
