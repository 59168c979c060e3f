// make-model: writes a checkpoint with computed weights, for tests of big networks without their trained weights.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shm/base/errors.hpp"
#include "tools/make_model/checkpoint_writer.hpp"
#include "tools/make_model/parameter_rule.hpp"

namespace {

using namespace shoal;

constexpr const char* kAbout =
    R"(Writes PREFIX-symbol.json and PREFIX-0000.params: the graph of an MXNet model, with weights that are computed from the
parameters' names. They are the same on every machine. Such models are for tests of big networks.

  make-model --symbol resnet50-symbol.json --shape data=1,3,224,224 /tmp/models/resnet50

Offset and scale of each parameter come from --parameters, or from FILE-parameters.txt beside FILE-symbol.json. Without
either they follow from the names: weights are scaled by their fan-in, gammas are around 1, and the last layers of residual
branches are damped. Shapes follow from those of the inputs. Give --shape once per input.

Some arrays belong to the network and follow no rule, such as the anchors of a detector. They are copied from --constants, or from
FILE-constants.params beside FILE-symbol.json.)";

constexpr int kFileAtFault = 1, kUsage = 2;

/// Parses "data=1,3,224,224".
Result<TensorSpec> parse_shape(const std::string& text) {
  const auto equals = text.find('=');
  TensorSpec spec;
  spec.name = text.substr(0, equals);
  std::vector<std::int64_t> dims;
  for (std::size_t at = equals; at < text.size();) {
    std::size_t used = 0;
    try {
      dims.push_back(std::stoll(text.substr(at + 1), &used));
    } catch (const std::exception&) {
      used = 0;
    }
    at += 1 + used;
    if (used == 0 || dims.back() < 1 || (at < text.size() && text[at] != ',')) dims.clear(), at = text.size();
  }
  if (spec.name.empty() || dims.empty() || dims.size() > kMaxRank) {
    return invalid_argument("--shape {}: write NAME=N,N,... with positive numbers, such as data=1,3,224,224", text);
  }
  spec.shape = Shape(dims);
  return spec;
}

/// `given` unless empty; else FILE + `ending` beside FILE-symbol.json, if it exists.
std::optional<std::filesystem::path> given_or_beside(const std::string& given, const std::string& symbol_file,
                                                     std::string_view ending) {
  constexpr std::string_view kEnding = "-symbol.json";
  if (!given.empty()) return given;
  if (!symbol_file.ends_with(kEnding)) return std::nullopt;
  const std::filesystem::path path = symbol_file.substr(0, symbol_file.size() - kEnding.size()) + std::string(ending);
  return std::filesystem::exists(path) ? std::optional(path) : std::nullopt;
}

struct Options {
  std::string symbol_file, parameters_file, constants_file, prefix;
  std::vector<std::string> shapes;
};

Status make(const Options& options) {
  std::vector<TensorSpec> inputs;
  for (const std::string& text : options.shapes) {
    SHOAL_ASSIGN_OR_RETURN(inputs.emplace_back(), parse_shape(text));
  }
  const auto listed = given_or_beside(options.parameters_file, options.symbol_file, "-parameters.txt");
  SHOAL_ASSIGN_OR_RETURN(const auto rules, listed ? make_model::read_parameter_rules(*listed)
                                                  : make_model::derive_parameter_rules(options.symbol_file, inputs));
  std::vector<NamedTensor> constants;
  if (const auto file = given_or_beside(options.constants_file, options.symbol_file, "-constants.params")) {
    SHOAL_ASSIGN_OR_RETURN(constants, make_model::read_constants(*file));
  }
  SHOAL_RETURN_IF_ERROR(make_model::write_checkpoint(options.symbol_file, rules, options.prefix, constants));
  std::int64_t numbers = 0;
  for (const auto& rule : rules) numbers += rule.shape.element_count();
  for (const auto& constant : constants) numbers += constant.tensor.shape().element_count();
  std::printf("%s-0000.params: %zu arrays, %lld numbers%s%s\n", options.prefix.c_str(), rules.size() + constants.size(),
              static_cast<long long>(numbers), listed ? ", by " : ", by the parameters' names", listed ? listed->c_str() : "");
  return {};
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app{kAbout, "make-model"};
  Options options;
  app.add_option("--symbol", options.symbol_file, "the graph: FILE-symbol.json")->required();
  app.add_option("--shape", options.shapes, "an input's shape: NAME=N,N,...")->required()->take_all();
  app.add_option("--parameters", options.parameters_file, "offset and scale of each parameter: FILE-parameters.txt");
  app.add_option("--constants", options.constants_file, "arrays to copy into the parameter file: FILE-constants.params");
  app.add_option("PREFIX", options.prefix, "the checkpoint to write: DIRECTORY/NAME")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  const Status status = make(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "make-model: %s\n", status.to_string().c_str());
  return kFileAtFault;
} catch (const std::exception& error) {  // for example of std::filesystem, when a path is too long
  std::fprintf(stderr, "make-model: %s\n", error.what());
  return kFileAtFault;
}
