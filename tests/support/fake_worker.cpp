// shoal-worker-fake: the real worker plus the device "fake". For tests only.
#include "shoal/passive_openmp.hpp"
#include "tests/support/fake_backend.hpp"
#include "worker/zygote/zygote.hpp"

int main(int argc, char** argv) {
  shoal::ensure_passive_openmp(argv);
  (void)shoal::test::fake_settings();  // the linker keeps the device
  return shoal::worker::worker_main(argc, argv);
}
