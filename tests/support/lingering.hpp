// A descriptor whose close() takes long.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "shm/base/unique_fd.hpp"
#include "shm/wire/control.hpp"
#include "tests/support/tcp_connection.hpp"

namespace shoal::test {

/// The close() of `holder` takes a minute, unless this ends before. A connection waits in it that lingers, because its other end
/// reads nothing.
struct Lingering {
  UniqueFd holder, other_end;
  Lingering() {
    UniqueFd lingers = tcp_connection(other_end);
    const std::vector<char> bytes(1 << 16);
    while (::send(lingers.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    const linger minute{.l_onoff = 1, .l_linger = 60};
    EXPECT_EQ(::setsockopt(lingers.get(), SOL_SOCKET, SO_LINGER, &minute, sizeof minute), 0);
    wire::ControlPair pair = wire::make_control_pair().value();
    wire::ControlMessage message{.kind = wire::ControlKind::kAttach};
    message.fds.push_back(std::move(lingers));
    EXPECT_TRUE(wire::send_control(pair.theirs.get(), message).ok());
    holder = std::move(pair.ours);
  }
};

}  // namespace shoal::test
