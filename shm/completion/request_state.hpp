// RequestState: what a Request is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "shm/completion/client_core.hpp"
#include "shm/completion/pending_outcome.hpp"
#include "shm/completion/ready_list.hpp"
#include "shoal/client.hpp"
#include "shoal/tensor.hpp"

namespace shoal::completion {

/// What a Model is.
struct ModelState {
  std::shared_ptr<ClientCore> core;
  std::string name;
  std::uint64_t version = 0;
  std::shared_ptr<const ModelInfo> first_info;
  std::shared_ptr<void> known;  ///< of ClientCore::know()
};

/// It belongs to its user, or, while it is under way, to the client that runs it.
struct RequestState final : ReadyItem {
  explicit RequestState(Model its) : model(std::move(its)) {}
  void drop() noexcept override { is_under_way.store(false, std::memory_order_release); }
  /// What is submitted. Inputs and outputs stay here.
  Submission submission(std::shared_ptr<Notice> notice) const {
    SubmitOptions all = options;
    if (all.version == 0) all.version = model.version();
    const bool is_of_model = model.state_ && all.version == model.state_->version;
    return {model.name(), inputs, outputs, all, std::move(notice), is_of_model ? model.state_->known : nullptr};
  }

  const std::shared_ptr<ClientCore>& core() const { return model.core(); }

  const Model model;
  Tensors inputs, outputs;
  SubmitOptions options;
  std::uint64_t id = 0, tag = 0;
  HandleSlot handle;  ///< of the last time it was submitted; empty: never
  std::atomic<bool> is_under_way{false};
  std::shared_ptr<RequestState> next_given_up;  ///< while its CompletionQueue is destroyed
};

/// A handle of a request that has failed already, of no client.
Prediction failed(Status why);

}  // namespace shoal::completion
