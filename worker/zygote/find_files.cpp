#include "worker/zygote/find_files.hpp"

#include <unistd.h>

#include <cstdio>
#include <exception>

#include "shm/base/errors.hpp"
#include "shm/model/version_entry.hpp"
#include "shm/wire/control.hpp"
#include "worker/serve/sandbox.hpp"

namespace shoal::worker {
namespace {

Status serve(int control, ProcessTitle& title) try {
  SHOAL_ASSIGN_OR_RETURN(const wire::Question asked, wire::receive_question(control));
  if (const Status same = wire::check_build(asked.build); !same.ok()) return wire::send_found(control, failure_text(same));
  SHOAL_ASSIGN_OR_RETURN(const FileQuestion question, parse_question(asked.text));
  title.set("shoal-find", question.model.name.empty() ? question.configuration.string() : question.model.name);
  // Enters the sandbox before it reads files of others. If there can be no sandbox, the zygote logs the reason.
  (void)enter_sandbox();
  (void)enter_worker_sandbox();
  return wire::send_found(control, answer(question));
} catch (const std::exception& error) {
  return internal_error("look for files: {}", error.what());
}

}  // namespace

void find_files(UniqueFd control, ProcessTitle title) {
  title.set("shoal-find", "");
  const Status served = serve(control.get(), title);
  if (!served.ok()) std::fprintf(stderr, "shoal-worker: %s\n", served.to_string().c_str());
  ::_exit(served.ok() ? 0 : 1);
}

}  // namespace shoal::worker
