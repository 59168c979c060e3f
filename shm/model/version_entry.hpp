// The versions of a model as found on disk, and the JSON of the question to the process that looks for them and of its answer.
//
//   ModelRequest ──request text──▶ find_entries() ──entries text──▶ VersionEntry, checked
//   path of a configuration ──request text──▶ parse_daemon_config() ──configuration text──▶ DaemonConfig, checked
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shm/model/model_config.hpp"
#include "shoal/result.hpp"

namespace shoal {

/// A path with this prefix names a built-in model, which has no files. "builtin:identity" takes one input `data` of any float32
/// shape and returns it.
inline constexpr std::string_view kBuiltinPrefix = "builtin:";

/// One version to serve, or why it cannot be served. `model` has its name, path and version in both cases.
struct VersionEntry {
  ServedModel model;
  Status failure;
  std::string stamp;                  ///< changes when one of its files is written again
  std::uint64_t parameter_bytes = 0;  ///< size of the files with its parameters
};

inline constexpr std::size_t kMostVersions = 256;            ///< of one model
inline constexpr std::size_t kLargestAnswerBytes = 4 << 20;  ///< of an answer: the supervisor parses it between two requests
inline constexpr std::size_t kMostLabels = 512 << 10;        ///< of an answer: even an empty one takes a std::string, 32 bytes

/// Finds the versions that are asked for, the lowest first. Returns at least one entry: if there is no version, it says why.
/// Reads model.toml and the labels, and looks at the other files. May wait forever for a file system.
std::vector<VersionEntry> find_entries(const ModelRequest& request);

/// True when both would load the same files with the same keys. Only `workers` may differ.
bool same_version(const VersionEntry& a, const VersionEntry& b);

/// An entry of a model that cannot be served.
VersionEntry failed_entry(const ModelRequest& request, Status failure);

/// What a process that looks for files is asked.
struct FileQuestion {
  ModelRequest model;                   ///< its name is empty when the question is for a configuration
  std::filesystem::path configuration;  ///< absolute
};
/// Both questions are JSON. Keys of a model have the names and forms of model.toml.
std::string question_text(const ModelRequest& request);
std::string question_text(const std::filesystem::path& configuration);
/// Errors: kInvalidArgument: not such a text.
Result<FileQuestion> parse_question(std::string_view text);

/// Reads the files. The answer says what was found, or which file is wrong, in at most kLargestAnswerBytes: a line of JSON, then
/// the labels of the versions, a line each, kMostLabels at most. Plain lines are read ten times as fast as JSON.
std::string answer(const FileQuestion& question);
/// The answer that nothing can be found, and why.
std::string failure_text(const Status& failure);

/// Checks an answer as a stranger's: each key has the type and range that model.toml demands, paths are absolute, versions
/// ascend. `request` wins over what the answer says of its name, path and keys.
///   Errors  kInternal: not such an answer
Result<std::vector<VersionEntry>> parse_entries(std::string_view text, const ModelRequest& request);
///   Errors  kInternal: not such an answer; what the reader says of the file
Result<DaemonConfig> parse_configuration(std::string_view text);

}  // namespace shoal
