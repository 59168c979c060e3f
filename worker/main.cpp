// shoal-worker: zygote and workers of one model version.
#include "shoal/passive_openmp.hpp"
#include "worker/zygote/zygote.hpp"

int main(int argc, char** argv) {
  shoal::ensure_passive_openmp(argv);
  return shoal::worker::worker_main(argc, argv);
}
