// The commands of shoal-pictures, and what they share.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "shm/base/format.hpp"
#include "shoal/client.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/picture_options.hpp"
#include "tools/shoal/working.hpp"

namespace shoal::tool {

Finish classify(const ClassifyOptions& options, Invocation& invocation);
Finish detect(const DetectOptions& options, Invocation& invocation);

/// A model in the daemon or in this process, as the options say.
struct PictureModel {
  Client client;
  std::string model;
  Optional<Preprocess> preprocess;  ///< of --preset
  int threads = 1;                  ///< pictures at the same time

  /// Runs what waits for the model's description, which may take as long as the model loads.
  auto wait_for(const auto& work) const {
    const Working working(format("waiting for model '{}'", model));
    return work();
  }
};
/// Connects or loads, and calls `work`.
Finish with_picture_model(const PictureOptions& options, Invocation& invocation,
                          const std::function<Finish(const PictureModel&)>& work);

}  // namespace shoal::tool
