#include "tests/crash/driver/snapshot.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tests/support/pool_fixture.hpp"
#include "tests/support/process_sample.hpp"

namespace shoal::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string proc(pid_t pid, const char* what) { return "/proc/" + std::to_string(pid) + "/" + what; }

/// The memfds that a process has open or mapped.
struct Memfds {
  int descriptors = 0, mappings = 0;
  int arenas = 0;  ///< of both, the arenas of clients
  int pages = 0;   ///< mapped status pages, which do not count as mappings

  explicit Memfds(pid_t pid) {
    std::error_code error;
    for (fs::directory_iterator entry(proc(pid, "fd"), error), end; !error && entry != end; entry.increment(error))
      add(fs::read_symlink(entry->path(), error), descriptors);
    std::ifstream maps(proc(pid, "maps"));
    for (std::string line; std::getline(maps, line);) add(line, line.find("/memfd:shoal:status") != line.npos ? pages : mappings);
  }

 private:
  void add(const std::string& text, int& count) {
    count += text.find("/memfd:") != std::string::npos;
    for (const char* label : {"/memfd:shoal:input", "/memfd:shoal:output"}) arenas += text.find(label) != std::string::npos;
  }
};

std::map<pid_t, std::string> roles_of(const json& stats) {
  std::map<pid_t, std::string> roles{{stats.at("supervisor").at("pid"), "supervisor"}};
  for (const json& model : stats.at("models")) {
    const std::string name = model.at("name");
    if (model.at("zygote").at("pid").is_number()) roles[model.at("zygote").at("pid")] = "zygote " + name;
    for (const json& worker : model.at("workers")) roles[worker.at("pid")] = "worker " + name;
  }
  return roles;
}

// Dead children of these processes that were not reaped.
int zombies_of(const std::map<pid_t, std::string>& roles) {
  int count = 0;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    std::ifstream file(entry->path() / "stat");
    std::string stat;
    if (!std::getline(file, stat) || stat.rfind(')') == std::string::npos) continue;
    char state = 0;
    pid_t parent = 0;
    if (std::sscanf(stat.c_str() + stat.rfind(')') + 1, " %c %d", &state, &parent) == 2)
      count += state == 'Z' && roles.contains(parent);
  }
  return count;
}

// Files in the directory that are neither the daemon's own nor the socket of a living worker's lane.
json strangers_in(const json& stats, const std::string& directory) {
  const std::set<std::string> known{"attach", "lanes", "lock", "log.txt"};
  std::set<std::string> of_workers;
  for (const json& model : stats.at("models")) {
    for (const json& worker : model.at("workers")) {
      for (std::size_t lane = 0; lane < worker.at("lanes").size(); ++lane)
        of_workers.insert("w" + worker.at("incarnation").dump() + "-" + std::to_string(lane));
    }
  }
  json strangers = json::array();
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (!known.contains(name)) strangers.push_back(name);
  }
  for (const auto& entry : fs::directory_iterator(fs::path(directory) / "lanes")) {
    const std::string name = entry.path().filename();
    // The name of a lane's socket is random in the middle. There is only one of each lane.
    const auto dash = name.find('-'), last = name.rfind('-');
    const bool is_lane = last != dash && of_workers.erase(name.substr(0, dash) + name.substr(std::min(last, name.size()))) > 0;
    if (!is_lane) strangers.push_back("lanes/" + name);
  }
  return strangers;
}

}  // namespace

json take_snapshot(const json& stats, const std::string& directory) {
  const auto roles = roles_of(stats);
  json processes = json::array();
  for (const pid_t pid : processes_of(directory)) {
    const auto sample = sample_process(pid);
    if (!sample) continue;
    const auto role = roles.find(pid);
    const Memfds memfds(pid);
    processes.push_back({{"role", role == roles.end() ? "unknown" : role->second},
                         {"pid", pid},
                         {"descriptors", sample->descriptors},
                         {"memfds", memfds.descriptors},
                         {"mappings", memfds.mappings},
                         {"pages", memfds.pages},
                         {"arenas", memfds.arenas},
                         {"private_bytes", sample->private_bytes}});
  }
  return {
      {"stats", stats}, {"processes", processes}, {"zombies", zombies_of(roles)}, {"strangers", strangers_in(stats, directory)}};
}

}  // namespace shoal::test
