// Packets with descriptors, sent and received without wire/control.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

#include "shm/base/unique_fd.hpp"

namespace shoal::test {

struct RawPacket {
  std::string bytes;  ///< "" = the peer hung up, or sent nothing for 5 s
  std::vector<UniqueFd> fds;
};

inline constexpr std::size_t kMostRawFds = 253;  // that the kernel takes

inline void send_packet(int socket, std::string bytes, const std::vector<int>& fds = {}, int flags = 0) {
  ASSERT_LE(fds.size(), kMostRawFds);
  alignas(cmsghdr) char control[CMSG_SPACE(kMostRawFds * sizeof(int))] = {};
  iovec part{bytes.data(), bytes.size()};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (!fds.empty()) {
    packet.msg_control = control;
    packet.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const head = CMSG_FIRSTHDR(&packet);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size() * sizeof(int));
  }
  EXPECT_EQ(::sendmsg(socket, &packet, MSG_NOSIGNAL | flags), static_cast<ssize_t>(bytes.size())) << std::strerror(errno);
}

inline RawPacket receive_packet(int socket) {
  RawPacket received;
  pollfd speaks{socket, POLLIN, 0};
  if (::poll(&speaks, 1, 5000) != 1) return received;
  std::string bytes(65536, '\0');
  alignas(cmsghdr) char control[CMSG_SPACE(kMostRawFds * sizeof(int))] = {};
  iovec part{bytes.data(), bytes.size()};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  const ssize_t size = ::recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
  if (size > 0) received.bytes = bytes.substr(0, static_cast<std::size_t>(size));
  for (cmsghdr* head = CMSG_FIRSTHDR(&packet); head; head = CMSG_NXTHDR(&packet, head)) {
    for (std::size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  return received;
}

}  // namespace shoal::test
