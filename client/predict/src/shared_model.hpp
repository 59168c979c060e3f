// SharedModel: what the predictors of one model share. It runs in this process (LocalModel) or in the pool (PooledModel).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shm/base/errors.hpp"
#include "shm/base/fork_guard.hpp"
#include "shoal/result.hpp"
#include "shoal/tensor.hpp"

namespace shoal::predict {

/// A model for inputs of given shapes: what one predictor runs. It keeps the SharedModel alive.
///   Threads  thread-compatible; different ones may be used at the same time
class BoundModel {
 public:
  virtual ~BoundModel() = default;
  /// In the model's order. A size that depends on data is -1.
  virtual const std::vector<TensorSpec>& outputs() const = 0;
  /// Runs once, and waits for the outputs.
  ///   inputs   those that it was bound for, in the same order
  ///   Returns  the outputs in the order of outputs(); valid until the next run
  virtual Result<const Tensors*> run(const Tensors& inputs) = 0;
};

///   Threads  thread-safe
class SharedModel : public std::enable_shared_from_this<SharedModel> {
 public:
  virtual ~SharedModel() = default;
  /// `inputs` in the model's order, without open dimensions.
  ///   Errors  kInvalidArgument: shapes that do not fit the model
  virtual Result<std::unique_ptr<BoundModel>> bind(const std::vector<TensorSpec>& inputs) = 0;
  /// Memory for an input of bound models. Its bytes are not defined.
  virtual Result<Tensor> make_input(DType dtype, const Shape& shape) = 0;

  /// Errors: kFailedPrecondition in a forked child: another thread of the parent may have held a lock, and threads of OpenMP and
  /// ZeroMQ are not there.
  Status usable() const {
    if (!fork_guard_.in_child()) return {};
    return failed_precondition("this process was forked from the process that made the predictor: make it after fork()");
  }

 private:
  const ForkGuard fork_guard_;
};

}  // namespace shoal::predict
