#include "tools/shoal/process_memory.hpp"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

namespace shoal::tool {
namespace {

std::uint64_t* field_of(ProcessMemory& memory, std::string_view key) {
  if (key == "Rss") return &memory.rss_bytes;
  if (key == "Pss") return &memory.pss_bytes;
  if (key.starts_with("Private_") && key != "Private_Hugetlb") return &memory.private_bytes;
  if (key.starts_with("Shared_") && key != "Shared_Hugetlb") return &memory.shared_bytes;
  return nullptr;
}

}  // namespace

ProcessMemory parse_smaps_rollup(std::string_view text) {
  ProcessMemory memory;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t colon = line.find(':');
    std::uint64_t* const field = colon == std::string_view::npos ? nullptr : field_of(memory, line.substr(0, colon));
    const std::size_t digit = field ? line.find_first_of("0123456789", colon) : std::string_view::npos;
    if (digit == std::string_view::npos) continue;
    std::uint64_t kilobytes = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), kilobytes);
    *field += kilobytes * 1024;
  }
  return memory;
}

std::optional<ProcessMemory> read_process_memory(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.view().find("Pss:") == std::string_view::npos) return std::nullopt;
  return parse_smaps_rollup(text.view());
}

}  // namespace shoal::tool
