// A process that can get no descriptor.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace shoal::test {

/// While it lives, this process gets no descriptors: RLIMIT_NOFILE is below those that are open.
///   Threads  for the whole process
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{3, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace shoal::test
