// LoadedModels: the models that predictors of this process run, each loaded once.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/predict/src/shared_model.hpp"
#include "shm/base/mutex.hpp"
#include "worker/graph/content_hash.hpp"

namespace shoal::predict {

/// What makes predictors those of one model. Shapes do not: programs for other shapes use the same weights.
struct ModelKey {
  worker::ContentDigest symbol, parameters;  ///< of their bytes, wherever these lie
  std::size_t symbol_bytes = 0, parameter_bytes = 0;
  std::vector<std::string> outputs;                   ///< that are wanted; none: the symbol's own
  std::vector<std::pair<std::string, DType>> inputs;  ///< weights are converted for their types
  int cores = 0;                                      ///< weights are packed for the number of cores of a run
  friend auto operator<=>(const ModelKey&, const ModelKey&) = default;
};

/// Keeps no model: the last predictor frees it.
///   Threads  thread-safe
class LoadedModels {
 public:
  using Load = std::function<Result<std::shared_ptr<SharedModel>>()>;

  LoadedModels();
  LoadedModels(const LoadedModels&) = delete;
  LoadedModels& operator=(const LoadedModels&) = delete;

  /// Of bytes that a program passes, with a secret of this process: no file can be made to be taken for another one.
  worker::ContentDigest digest(std::span<const std::byte> bytes) const { return worker::digest_of(bytes, secret_); }

  /// The model of that key, or what `load` returns. If several threads want it, one loads and the others wait. Threads that want
  /// other models do not.
  Result<std::shared_ptr<SharedModel>> get(const ModelKey& key, const Load& load) SHOAL_EXCLUDES(mutex_);

 private:
  struct Entry {
    Mutex mutex;  ///< held while the model is loaded
    std::weak_ptr<SharedModel> model SHOAL_GUARDED_BY(mutex);
  };

  std::shared_ptr<Entry> entry_of(const ModelKey& key) SHOAL_EXCLUDES(mutex_);

  std::array<std::byte, worker::kDigestSecretBytes> secret_{};
  Mutex mutex_;  ///< never held during a load
  std::map<ModelKey, std::shared_ptr<Entry>> entries_ SHOAL_GUARDED_BY(mutex_);
};

}  // namespace shoal::predict
