// The backend "cpu": oneDNN in float32, with direct algorithms and, where allowed, Winograd's. Nodes that oneDNN does not
// support run by one of Shoal's loops or by their oracle kernel.
#include <omp.h>

#include <new>

#include "shm/base/errors.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/cpu/compiler.hpp"
#include "worker/exec/cpu/onednn.hpp"
#include "worker/exec/cpu/options.hpp"
#include "worker/exec/model.hpp"

namespace shoal::worker {
namespace {

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const cpu::Options& options) : options_(options) {}

  std::string identity() const override {
    const dnnl_version_t* version = dnnl_version();
    return format("cpu; oneDNN {}.{}.{} {}; isa {}; threads {}; fuse {}; precision {}", version->major, version->minor,
                  version->patch, version->hash, static_cast<int>(dnnl::get_effective_cpu_isa()), options_.threads,
                  static_cast<int>(options_.fuse), word_of(options_.precision));
  }
  Precision precision_of(const Choices& choices) const override { return cpu::precision_of(choices, options_); }
  int threads() const override { return options_.threads; }
  void enter_thread() const override {
    ::omp_set_num_threads(options_.threads);
    try {
      (void)cpu::stream();
    } catch (const std::bad_alloc&) {  // the first run tries again, and its caller knows what to do without memory
    }
  }

  Claims claim(const Graph& graph) const override { return Claims::of_all(graph); }

  Result<Plan> prepare(const Graph& part, WeightStore& weights, const Choices& choices) const override try {
    const cpu::OmpWidth width(options_.threads);
    const cpu::PrimitiveSharing sharing;
    return cpu::compile_graph(part, weights, options_, choices);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    return internal_error("compile for the cpu: oneDNN says: {} (status {})", error.what(), static_cast<int>(error.status));
  }

  std::vector<TypeSupport> type_table() const override { return cpu::Compiler::type_table(); }

  std::vector<Choices> variants() const override {
    // For blocked layouts and channels last: the library's first implementation, then its second. Winograd's two come before
    // the direct ones and exist for blocked layouts only. The layouts alternate, so that both are measured even in little time;
    // that which is taken without a measurement comes first.
    std::vector<Choices> all;
    const auto add = [&](Precision precision, int preferences) {
      const std::string first = cpu::with_layout({.precision = precision}, options_).layout;
      for (int preference = 0; preference < preferences; ++preference) {
        for (const std::string& layout : {first, std::string(first == cpu::kBlocked ? cpu::kChannelsLast : cpu::kBlocked)}) {
          if (layout == cpu::kBlocked || preference < cpu::kCandidates)
            all.push_back({.precision = precision, .layout = layout, .preference = preference});
        }
      }
    };
    if (options_.precision != Precision::kAuto) {
      const Precision precision = precision_of({});
      add(precision, precision == Precision::kF32Fast ? 2 * cpu::kCandidates : cpu::kCandidates);
      return all;
    }
    add(Precision::kF32, cpu::kCandidates);
    if (cpu::has_bf16()) add(Precision::kBf16, cpu::kCandidates);
    for (int preference = 0; preference < cpu::kCandidates; ++preference)
      all.push_back({.precision = Precision::kF32Fast, .layout = cpu::kBlocked, .preference = preference});
    return all;
  }

 private:
  const cpu::Options options_;
};

Result<std::shared_ptr<const Backend>> make_cpu(const ModelOptions& options) {
  return std::shared_ptr<const Backend>(
      std::make_shared<CpuBackend>(cpu::Options{.threads = options.threads,
                                                .fuse = options.fuse,
                                                .precision = options.precision,
                                                .core_cache_bytes = options.core_cache_bytes.value_or(cpu::kCoreCacheBytes)}));
}
const BackendRegistration kRegistration("cpu", make_cpu);

}  // namespace
}  // namespace shoal::worker
