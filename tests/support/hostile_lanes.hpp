// The workers of shoal-worker-hostile. Each is a process of its own, begun by a FORK.
#pragma once

#include "shm/wire/messages.hpp"
#include "tests/support/hostile_process.hpp"

namespace shoal::test {

/// Sends anything on its lanes and elsewhere.
[[noreturn]] void run_hostile_worker(Chance chance, ControlMessage fork, pid_t supervisor);
/// Has one lane. When it gets a request, it sends many frames of a message that it never finishes.
[[noreturn]] void run_hoarder(ControlMessage fork);
/// Has one lane, and sends replies, or what `kind` is, about requests that it never had, as fast as it can.
[[noreturn]] void run_babbler(ControlMessage fork, wire::Kind kind, std::uint16_t status = 0);
/// Has one lane, and binds the names that other workers may be about to bind.
[[noreturn]] void run_squatter(ControlMessage fork);

}  // namespace shoal::test
