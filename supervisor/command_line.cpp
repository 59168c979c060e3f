#include "supervisor/command_line.hpp"

#include <CLI/CLI.hpp>

namespace shoal::supervisor {

void add_options(CLI::App& app, CommandLine& line) {
  app.add_option("--model", line.models,
                 "NAME=PATH[,workers=N,contexts=N,threads=N,device=D,...]: serve the checkpoint at PATH, which may be a URL; may "
                 "be repeated")
      ->type_name("NAME=PATH")
      ->allow_extra_args(false);
  app.add_option("--config", line.config, "TOML file with tables [models.NAME]")->type_name("FILE");
  app.add_option("--worker", line.worker, "the shoal-worker to run instead of the one beside this binary")->type_name("FILE");
  app.add_option("--socket-group", line.socket_group,
                 "NAME or number of the group whose members may attach, too, instead of the configuration's socket_group")
      ->type_name("GROUP");
  app.add_option("--log-format", line.log_format,
                 "text: an event, then key=value; or json: an object per line. Default: $SHOAL_LOG_FORMAT, else text")
      ->check(CLI::IsMember({"text", "json"}));
}

}  // namespace shoal::supervisor
