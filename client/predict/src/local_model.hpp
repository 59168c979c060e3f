// LocalModel: a model in this process.
#pragma once

#include <memory>

#include "client/predict/src/given_model.hpp"
#include "client/predict/src/shared_model.hpp"

namespace shoal::predict {

/// Packs the weights; what `given` refers to is not needed afterwards. Algorithms are not measured: a program would wait for
/// that.
///   threads  cores of each run
///   Errors   those of worker::load_model()
Result<std::shared_ptr<SharedModel>> load_local_model(GivenModel given, int threads);

/// The cores that OpenMP would use in this thread. One in a child that was forked after the first call: OpenMP's threads are not
/// there, and it would wait for them for ever.
int cores_of_this_thread();

}  // namespace shoal::predict
