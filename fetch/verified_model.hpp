// Models at file:// URLs, which are used where they are.
#pragma once

#include "fetch/limits.hpp"
#include "shm/model/fetched_model.hpp"
#include "shm/model/model_config.hpp"

namespace shoal::fetch {

/// Verifies each file of the versions that `request` asks for that a SHA256SUMS beside it names. Looks at them every time anew:
/// sizes and times of files do not prove that their bytes are the same. What is missing or cannot be read, in one of several
/// versions, is no error here: the process that looks for files says what that version lacks.
///   request  its path is a file:// URL
///   Errors   kDataLoss: another sum, a SHA256SUMS that is none, or one that names none of the model's files; those of
///            find_versions(), reading SHA256SUMS and Course::check(); kInvalidArgument: more than kMostVersions
Result<FetchedModel> verify_model(const ModelRequest& request, const Course& course);

/// Errors: kInvalidArgument: more versions than kMostVersions.
Status check_version_count(const ModelRequest& request, std::size_t count);

}  // namespace shoal::fetch
