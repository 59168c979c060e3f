#include "worker/import/importer.hpp"

#include "shm/base/check.hpp"
#include "shm/base/shortened.hpp"
#include "worker/import/names.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kReasonBytes = 400;

using Importers = std::map<std::string_view, const Importer*>;

// Importers are registered while static objects are made, in any order of files.
Importers& importers() {
  static Importers by_name;
  return by_name;
}

}  // namespace

Result<ForeignModel> ForeignModel::open(const std::vector<std::filesystem::path>& files, std::vector<std::string> outputs) {
  ForeignModel model{.files = {}, .outputs = std::move(outputs)};
  for (const std::filesystem::path& path : files) {
    SHOAL_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::open(path));
    model.files.push_back(std::move(file));
  }
  return model;
}

Importer::Importer(ModelKind kind) : kind_(std::move(kind)) {
  SHOAL_CHECK(importers().emplace(kind_.name, this).second);
  register_model_kind(kind_);
}

std::vector<const Importer*> all_importers() {
  std::vector<const Importer*> all;
  for (const auto& [name, importer] : importers()) all.push_back(importer);
  return all;
}

Result<const Importer*> Importer::find(const ForeignModel& model) {
  if (model.files.empty()) return invalid_argument("a model without files cannot be read");
  const std::string& name = model.files.front().name;
  std::vector<std::string_view> formats;
  for (const Importer* const importer : all_importers()) {
    if (kind_of(name) == &importer->kind_) return importer;
    formats.push_back(importer->kind_.title);
  }
  for (const Importer* const importer : all_importers()) {
    if (importer->recognizes(model)) return importer;
  }
  return invalid_argument("{}: neither its name nor its contents are those of a known format (there are: {})", name,
                          listed(formats));
}

Result<Import> Importer::read(const ForeignModel& model, const ImportLimits& limits) {
  SHOAL_ASSIGN_OR_RETURN(const Importer* const importer, find(model));
  return importer->import(model, limits, nullptr);
}

Result<Survey> Importer::survey(const ForeignModel& model, const ImportLimits& limits) {
  SHOAL_ASSIGN_OR_RETURN(const Importer* const importer, find(model));
  Survey survey{.kind = &importer->kind_};
  SHOAL_ASSIGN_OR_RETURN(survey.import, importer->import(model, limits, &survey));
  return survey;
}

Result<Import> read_model(const std::vector<std::filesystem::path>& files, std::vector<std::string> outputs,
                          const ImportLimits& limits) {
  SHOAL_ASSIGN_OR_RETURN(const ForeignModel model, ForeignModel::open(files, std::move(outputs)));
  return Importer::read(model, limits);
}

Result<Survey> survey_model(const std::vector<std::filesystem::path>& files, std::vector<std::string> outputs,
                            const ImportLimits& limits) {
  SHOAL_ASSIGN_OR_RETURN(const ForeignModel model, ForeignModel::open(files, std::move(outputs)));
  return Importer::survey(model, limits);
}

Status check_parameters(const Import& import, const std::set<std::string>& data) {
  std::vector<std::string> names;
  std::string why;
  for (const auto& [name, reason] : import.missing_parameters) {
    if (data.contains(name)) continue;
    if (names.empty()) why = reason;
    names.push_back("'" + name + "'");
  }
  if (names.empty()) return {};
  const std::string others = names.size() == 1 ? "" : format(" ({} are missing: {})", names.size(), listed(names));
  return invalid_argument("{} holds no {}, {}{}. If requests provide it instead, name it in `inputs`", import.parameter_file,
                          shortened(names.front(), kReasonBytes), why, shortened(others, kReasonBytes));
}

}  // namespace shoal::worker
