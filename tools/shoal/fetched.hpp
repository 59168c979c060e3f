// Models at URLs, for commands that need files.
#pragma once

#include <string>

#include "shm/model/fetched_model.hpp"
#include "shm/model/model_config.hpp"
#include "shoal/result.hpp"
#include "tools/shoal/console.hpp"

namespace shoal::tool {

/// Where a model at a file:// URL is afterwards. Others are in the cache.
enum class ModelPlace { kWhereItIs, kCache };

/// Has shoal-fetch fetch the model at a URL into the cache, or verify the files of a file:// URL, and shows its progress.
///   Errors  those of the fetch, which name the URL; kUnavailable: shoal-fetch is missing, or died
Result<FetchedModel> fetch(const std::string& url, const ModelOverrides& overrides, ModelPlace place);

/// A path as it is. For a URL: where the model is after it was fetched or verified; warnings go to the console.
///   Errors  those of fetch()
Result<std::string> local_model(const std::string& path_or_url, Console& console);

}  // namespace shoal::tool
