#include "worker/exec/cpu/cpu_device.hpp"

#include <omp.h>

#include <new>

#include "shm/base/errors.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/cpu/onednn.hpp"

namespace shoal::worker {
namespace {

constexpr int kCachedPrimitives = 1024;

/// oneDNN's own cache of primitives lets the equal layers of one graph share their code. What it holds would outlive our programs
/// beside every budget, at some 30 KB each, so it is emptied after each compilation: from then on a primitive lives as long as
/// the programs that run it.
struct PrimitiveSharing {
  PrimitiveSharing() { dnnl::set_primitive_cache_capacity(kCachedPrimitives); }
  ~PrimitiveSharing() { dnnl::set_primitive_cache_capacity(0); }
};

class CpuDevice : public Device {
 public:
  CpuDevice(int threads, bool fuse) : threads_(threads), fuse_(fuse) {}

  std::string identity() const override {
    const dnnl_version_t* version = dnnl_version();
    return format("cpu; oneDNN {}.{}.{} {}; isa {}; threads {}; fuse {}", version->major, version->minor, version->patch,
                  version->hash, static_cast<int>(dnnl::get_effective_cpu_isa()), threads_, static_cast<int>(fuse_));
  }
  void enter_thread() const override { ::omp_set_num_threads(threads_); }

  Result<Plan> compile(const Graph& graph, WeightStore& weights) const override try {
    const cpu::OmpWidth width(threads_);
    const PrimitiveSharing sharing;
    return cpu::Compiler(graph, weights, fuse_).compile();
  } catch (const dnnl::error& error) {
    return internal_error("compile for the cpu: oneDNN says: {} (status {})", error.what(), static_cast<int>(error.status));
  } catch (const std::bad_alloc&) {
    return internal_error("compile for the cpu: no memory");
  }

 private:
  int threads_;
  bool fuse_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads, bool fuse) { return std::make_unique<CpuDevice>(threads, fuse); }

}  // namespace shoal::worker
