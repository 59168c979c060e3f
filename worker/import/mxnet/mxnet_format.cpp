// MXNet's checkpoints as a format behind the door.
#include <algorithm>
#include <string_view>

#include "shm/base/errors.hpp"
#include "worker/import/importer.hpp"
#include "worker/import/mxnet/mxnet_catalog.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"

namespace shoal::worker {
namespace {

class MxnetFormat final : public Importer {
 public:
  MxnetFormat() : Importer({.name = "mxnet", .title = "MXNet", .graph_suffix = "-symbol.json", .weights_suffix = ".params"}) {}

  std::vector<ForeignOperator> operators() const override { return mxnet_catalog(); }

 private:
  /// A graph in JSON names its nodes early.
  bool recognizes(const ForeignModel& model) const override {
    constexpr std::size_t kLookedAt = 4096;
    const auto bytes = model.files.front().bytes;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kLookedAt));
    return text.find_first_not_of(" \t\r\n") == text.find('{') && text.find("\"nodes\"") != text.npos;
  }

  Result<Import> import(const ForeignModel& model, const ImportLimits& limits, Survey* survey) const override {
    if (model.files.size() == 2) return import_mxnet(model, limits, survey);
    return invalid_argument("{}: an MXNet checkpoint has two files, the graph and its parameters, and not {}",
                            model.files.front().name, model.files.size());
  }
};

const MxnetFormat kFormat;

}  // namespace
}  // namespace shoal::worker
