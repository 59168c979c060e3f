// shoal: the command line.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "tools/shoal/commands.hpp"
#include "tools/shoal/completion.hpp"

namespace {

using namespace shoal::tool;

constexpr const char* kAbout = R"(Inspects models, runs them in this process, and uses the models of a running daemon.)";
constexpr const char* kExamples = R"(Without a daemon:
  shoal inspect models/resnet-50                          the contents of a checkpoint, and whether it can run
  shoal run models/resnet-50 --input data=x.npy --output out
  shoal classify models/resnet-50 cat.jpg --preset imagenet
  shoal detect models/ssd street.jpg --draw boxes.png
  shoal bench models/resnet-50 --in-flight 1,2            how long requests take under load
  shoal fetch s3://bucket/models/resnet-50 models         from https://, s3:// or hdfs:// into a directory
With a daemon (SHOAL_DIR=/tmp/shoal shoald --model resnet=models/resnet-50,workers=4 &):
  shoal status                                            its models, its processes and their memory
  shoal top                                               its present activity
  shoal crashes                                           the deaths of workers, and what happened to their requests
  shoal trace --chrome trace.json                         the last events of its workers, as a trace
  shoal classify resnet *.jpg --top-k 3
  shoal predict resnet --input data=x.npy --output out
  shoal bench resnet --rate 50,100,200 --plot latency.svg
  shoal load shapes=models/shapes,workers=2               serve another model; see also shoal reload, scale, drain and unload
  shoal stop

A PATH is PREFIX for PREFIX-symbol.json and PREFIX-0000.params, PREFIX@7 for epoch 7, or a directory with one checkpoint.
The daemon's directory is $SHOAL_DIR, else $XDG_RUNTIME_DIR/shoal, else /run/shoal. $SHOAL_DAEMON_USER is the number of a user whose
daemon is used, too, wherever it is.
More about a command: shoal COMMAND --help. Exit codes: 0 success, 1 the request or a file is at fault, 2 usage,
3 no daemon, it does not answer, or the model is not available now. The first line on stderr is the error.)";

}  // namespace

int main(int argc, char** argv) {
  CLI::App application(kAbout, "shoal");
  application.footer(kExamples);
  application.set_version_flag("--version", "shoal " SHOAL_VERSION);
  const std::array commands{
      make_inspect(application), make_run(application),    make_classify(application),  make_detect(application),
      make_predict(application), make_bench(application),  make_operators(application), make_fetch(application),
      make_status(application),  make_top(application),    make_trace(application),     make_crashes(application),
      make_load(application),    make_unload(application), make_reload(application),    make_scale(application),
      make_drain(application),   make_stop(application),   make_completion(application)};
  if (argc > 2 && std::string_view(argv[1]) == "completion") {
    const std::vector<std::string> words(argv + 3, argv + argc);
    if (std::string_view(argv[2]) == "words") return print_candidates(application, words);
    if (std::string_view(argv[2]) == "daemon-words") return print_daemon_candidates(words);
  }
  const auto is_named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && application.get_subcommands(is_named).empty()) {  // CLI11 ignores it before --help
    std::fprintf(stderr, "shoal: there is no command '%s': see shoal --help\n", argv[1]);
    return kUsage;
  }
  return run_command_line(application, commands, argc, argv);
}
