// What the process that talks to servers gives up before the first byte from outside.
#pragma once

#include <filesystem>
#include <vector>

#include "shoal/result.hpp"

namespace shoal::fetch {

/// From now on this process executes nothing, starts no other, traces and signals nobody, and opens only the sockets that
/// HTTP and name services need. Where the kernel has Landlock, it writes only below `writable`, and reads only there, below
/// `readable`, and what libraries need: certificates, settings of the network, name services. It gets
/// no more than 512 MiB of memory.
///   Errors  kInternal: the kernel has no seccomp filters
Status enter_sandbox(const std::filesystem::path& writable, const std::vector<std::filesystem::path>& readable);

}  // namespace shoal::fetch
