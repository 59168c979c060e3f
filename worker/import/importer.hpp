// Importer: the door through which a model of any format becomes a Graph. Each format is an object that registers itself.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "shm/model/model_kind.hpp"
#include "shoal/result.hpp"
#include "worker/graph/graph.hpp"
#include "worker/import/foreign_file.hpp"

namespace shoal::worker {

/// What an importer reads. An importer opens nothing itself: what is not among `files` is not part of the model.
struct ForeignModel {
  std::vector<ForeignFile> files;  ///< on disk or in memory; in the order of ModelFiles::files
  /// The outputs of the graph, in this order, by the names that the format gives; inner values, too. Empty: the model's own.
  std::vector<std::string> outputs = {};

  /// Maps the files. Errors: those of ForeignFile::open().
  static Result<ForeignModel> open(const std::vector<std::filesystem::path>& files, std::vector<std::string> outputs = {});
};

struct Import {
  Graph graph;
  /// Inputs that look like missing parameters, each with the reason: "which Convolution 'conv0' reads as its weight".
  std::map<std::string, std::string> missing_parameters;
  std::string parameter_file;                        ///< where they should be
  std::map<std::string, std::string> sparse_inputs;  ///< those that the graph has sparse: "csr" or "row_sparse", by name
  /// Of the graph in the file, whatever outputs are wanted: at most 64 letters, digits and colons, equal if the graphs are.
  /// Empty: the format has none.
  std::string fingerprint;
  std::vector<std::string> warnings;  ///< superfluous parameters, unknown attributes: a few short lines naming file or node
};

/// The contents of a model, whether or not Shoal can run it.
struct Survey {
  struct Operator {
    std::string name;  ///< in the file
    std::size_t count = 0;
  };
  const ModelKind* kind = nullptr;
  int version = 0;                  ///< of the format, as the file says; 10901 for MXNet 1.9.1; 0 when it does not
  std::string writer;               ///< "MXNet 1.9.1"
  Import import;                    ///< the supported part: no node produces the outputs of unsupported nodes
  std::vector<Operator> operators;  ///< of the nodes that the outputs need; most frequent first
  /// The nodes that cannot be imported, in the file's order; empty if reading succeeds.
  std::vector<RefusedNode> unsupported;
};

/// One operator of a format, for its documentation.
struct ForeignOperator {
  std::string name;                  ///< the first of its names
  std::vector<std::string> aliases;  ///< its other names
  /// The Shoal operators that a node without attributes becomes. Empty: the output is the input.
  std::vector<std::string> becomes;
};

///   Threads  thread-safe once main() runs; formats are registered before
class Importer {
 public:
  /// Registers the format and the names of its files. Aborts if another one has them. Importers live as long as the process.
  explicit Importer(ModelKind kind);
  virtual ~Importer() = default;
  Importer(const Importer&) = delete;
  Importer& operator=(const Importer&) = delete;

  /// Reads the model with the importer of its format: that of the kind of its first file (kind_of()), else the one that
  /// recognizes the contents. Removes labels and unused branches. Constants are views into the files where these store them
  /// uncompressed and in row-major order.
  ///   Errors  kDataLoss (names file, offset, field); kUnimplemented (names operator and node); kInvalidArgument (attributes,
  ///           arrays without names or values, the limits, files of no known format); kNotFound: an output that the graph does
  ///           not have; names those that are called most alike
  static Result<Import> read(const ForeignModel& model, const ImportLimits& limits = {});
  /// As read(), but lists unsupported nodes instead of failing, and outputs that do not exist as warnings.
  static Result<Survey> survey(const ForeignModel& model, const ImportLimits& limits = {});

  const ModelKind& kind() const { return kind_; }
  /// The operators that can be imported, by name.
  virtual std::vector<ForeignOperator> operators() const = 0;

 private:
  static Result<const Importer*> find(const ForeignModel& model);
  /// Do the contents look like this format's? The names of the files said nothing.
  virtual bool recognizes(const ForeignModel& model) const = 0;
  /// Of read() and, if `survey` is given, of survey(), except `kind` and `import`.
  virtual Result<Import> import(const ForeignModel& model, const ImportLimits& limits, Survey* survey) const = 0;

  const ModelKind kind_;
};

/// The importers of all formats, by the name of their kind.
std::vector<const Importer*> all_importers();

/// Opens the files, and reads or surveys the model.
Result<Import> read_model(const std::vector<std::filesystem::path>& files, std::vector<std::string> outputs = {},
                          const ImportLimits& limits = {});
Result<Survey> survey_model(const std::vector<std::filesystem::path>& files, std::vector<std::string> outputs = {},
                            const ImportLimits& limits = {});

/// Refuses a model that lacks parameters. The names in `data` are inputs that each request brings, so they are not missing.
///   Errors  kInvalidArgument naming the file, the parameter and the node that reads it
Status check_parameters(const Import& import, const std::set<std::string>& data);

}  // namespace shoal::worker
