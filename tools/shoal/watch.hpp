// Shows something of the daemon again and again.
#pragma once

#include <functional>
#include <string>

#include "shoal/pool.hpp"
#include "tools/shoal/console.hpp"
#include "tools/shoal/interrupt.hpp"

namespace shoal::tool {

/// Prints a page: over the last one on a terminal, if `in_place`, else below it with an empty line between them. A page of JSON
/// is one line, and always goes below.
///   Threads  thread-bound
class Pages {
 public:
  Pages(bool in_place, bool is_json);
  void show(const std::string& page);

 private:
  bool in_place_, is_json_;
};

/// Shows what `look` returns every `interval_s` seconds, until Ctrl-C, or until nobody reads it any more. If the daemon goes away
/// or does not answer, says so and waits for it, or for the next one.
///   look    its text; an error that is the daemon's is waited for, too
///   Errors  there is no daemon at the beginning; others of `look`
Finish watch_daemon(double interval_s, bool is_json, const std::function<Result<std::string>(Pool&)>& look);

}  // namespace shoal::tool
