// Fetches a model: which files it consists of, and where they are afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fetch/limits.hpp"
#include "fetch/source.hpp"
#include "shm/model/fetched_model.hpp"
#include "shm/model/model_config.hpp"

namespace shoal::fetch {

/// Fetches the versions of the model at `request.path` that `request` asks for, as find_versions() would choose them if the
/// files were here: the graph, the parameters, model.toml, synset.txt or the labels that it names, PREFIX-shapes.json, the golden
/// file. Over http(s), where nobody lists files, SHA256SUMS says which there are; without it the names are tried.
///   cache    a directory that exists; each URL has one of its own in it
///   Errors   those of FileFetcher::fetch(), Source::list() and find_versions(), which name URLs; kInvalidArgument: model.toml
///            names a file that is not beside it
Result<FetchedModel> fetch_model(const ModelRequest& request, const Location& location, Source& source, HttpClient& client,
                                 Course& course, const std::filesystem::path& cache);

}  // namespace shoal::fetch
