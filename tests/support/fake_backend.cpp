#include "tests/support/fake_backend.hpp"

#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/unique_fd.hpp"
#include "worker/exec/backend.hpp"
#include "worker/exec/graph_plan.hpp"
#include "worker/graph/operators.hpp"
#include "worker/ops/activation.hpp"
#include "worker/ops/arithmetic.hpp"
#include "worker/ops/convolution.hpp"
#include "worker/ops/normalization.hpp"
#include "worker/ops/pooling.hpp"

namespace shoal::test {
namespace {

using namespace shoal::worker;
using Refuse = FakeSettings::Refuse;

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

/// The device's memory: bytes, and the addresses by which the host may name them.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes)
      : bytes_(AlignedBytes::allocate(bytes)), window_bytes_(std::max<std::size_t>(bytes, 1)) {
    void* const window = ::mmap(nullptr, window_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (window == MAP_FAILED) throw std::bad_alloc();
    window_ = static_cast<std::byte*>(window);
  }
  ~DeviceMemory() { ::munmap(window_, window_bytes_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* window() const { return window_; }
  std::byte* bytes_at(const std::byte* address) const { return bytes_.data.get() + (address - window_); }

 private:
  AlignedBytes bytes_;
  std::size_t window_bytes_;
  std::byte* window_ = nullptr;
};

void count_command() {
  static std::atomic<std::uint64_t> commands{0};
  const std::uint64_t limit = fake_settings().abort_after;
  if (++commands > limit && limit > 0) std::abort();
}

class FakeQueue : public Queue {
 public:
  using Command = std::function<Status()>;

  FakeQueue()
      : done_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), memory_(std::make_unique<DeviceMemory>(0)), thread_([this] { run(); }) {
    SHOAL_CHECK(done_);
  }
  ~FakeQueue() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = drops_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  FakeQueue(const FakeQueue&) = delete;
  FakeQueue& operator=(const FakeQueue&) = delete;

  Result<std::byte*> reserve(std::size_t bytes) override {
    memory_ = std::make_unique<DeviceMemory>(bytes);
    return memory_->window();
  }
  Status copy_in(std::byte* device, std::span<const std::byte> host) override {
    give([this, device, host] {
      std::memcpy(memory_->bytes_at(device), host.data(), host.size());
      ++fake_counters().copies_in;
      return Status();
    });
    return {};
  }
  Status copy_out(std::span<std::byte> host, const std::byte* device) override {
    give([this, device, host] {
      std::memcpy(host.data(), memory_->bytes_at(device), host.size());
      ++fake_counters().copies_out;
      return Status();
    });
    return {};
  }
  int start() override {
    {
      const std::lock_guard lock(mutex_);
      eventfd_t ignored = 0;
      (void)::eventfd_read(done_.get(), &ignored);  // of an earlier start() that nobody finished
      commands_.push_back({nullptr, ++marks_});
    }
    changed_.notify_one();
    return done_.get();
  }
  Status finish() override {
    const std::lock_guard lock(mutex_);
    eventfd_t ignored = 0;
    (void)::eventfd_read(done_.get(), &ignored);
    drops_ = false;
    return std::exchange(error_, Status());
  }
  void cancel() override {
    const std::lock_guard lock(mutex_);
    drops_ = true;
  }
  void give(Command command) {
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back({std::move(command), 0});
    }
    changed_.notify_one();
  }
  const DeviceMemory& memory() const { return *memory_; }

 private:
  struct Entry {
    Command command;  // none: a mark
    std::uint64_t mark = 0;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_over_ || !commands_.empty(); });
      if (commands_.empty()) return;
      const Entry next = std::move(commands_.front());
      commands_.pop_front();
      if (!next.command) {
        if (next.mark == marks_) (void)::eventfd_write(done_.get(), 1);
      } else if (drops_ || !error_.ok()) {
        ++fake_counters().dropped;
      } else {
        lock.unlock();
        count_command();
        std::this_thread::sleep_for(std::chrono::microseconds(fake_settings().latency_us));
        Status status = next.command();
        lock.lock();
        if (!status.ok()) error_ = std::move(status);
      }
    }
  }

  const UniqueFd done_;
  std::unique_ptr<DeviceMemory> memory_;  // changed only while nothing runs
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> commands_;
  std::uint64_t marks_ = 0;
  bool drops_ = false, is_over_ = false;
  Status error_;
  std::thread thread_;
};

/// A tensor of a part: a constant, an operand, or a hidden output that nobody reads.
struct Slot {
  DType dtype = DType::kInvalid;
  Shape shape;
  int operand = -1, weight = -1;
};
struct Work {
  Node node;
  std::vector<Slot> src, dst;
};

class ActivePart : public BoundStep {
 public:
  ActivePart(FakeQueue& queue, const std::string& name, const std::vector<Work>& work, const WeightStore& weights)
      : queue_(queue), name_(name), work_(work) {
    for (const Work& each : work) {
      for (const Slot& slot : each.src) {
        if (slot.weight >= 0) upload(slot.weight, weights);
      }
    }
  }
  void set_addresses(std::span<std::byte* const> operands) override { operands_.assign(operands.begin(), operands.end()); }
  Status run() override {
    queue_.give([this] { return compute(); });
    return {};
  }

 private:
  void upload(int index, const WeightStore& weights) {
    weights_.resize(std::max(weights_.size(), at(index) + 1));
    if (weights_[at(index)].data != nullptr) return;
    weights_[at(index)] = AlignedBytes::allocate(weights.entry(index).size_bytes);
    std::memcpy(weights_[at(index)].data.get(), weights.address(index), weights.entry(index).size_bytes);
  }

  TensorView view(const Slot& slot) const {
    std::byte* data = nullptr;
    if (slot.weight >= 0) data = weights_[at(slot.weight)].data.get();
    if (slot.operand >= 0) data = queue_.memory().bytes_at(operands_[at(slot.operand)]);
    return {slot.dtype, slot.shape, data};
  }

  // In the queue's thread.
  Status compute() const {
    if (fake_settings().refuse == Refuse::kRun) return internal_error("fake: {} failed", name_);
    ++fake_counters().parts_run;
    for (const Work& each : work_) {
      std::vector<TensorView> src, dst;
      for (const Slot& slot : each.src) src.push_back(view(slot));
      for (const Slot& slot : each.dst) dst.push_back(view(slot));
      SHOAL_RETURN_IF_ERROR(each.node.op->oracle(each.node, src, dst));
    }
    return {};
  }

  FakeQueue& queue_;
  const std::string& name_;
  const std::vector<Work>& work_;
  std::vector<AlignedBytes> weights_;  // by their index in the WeightStore
  std::vector<std::byte*> operands_;
};

class FakePart : public DeviceStep {
 public:
  FakePart(std::string name, std::vector<BufferId> operands, std::vector<Work> work)
      : DeviceStep(std::move(name), std::move(operands)), work_(std::move(work)) {}
  std::string implementation() const override { return "fake"; }
  Result<std::unique_ptr<BoundStep>> activate(Queue& queue, const WeightStore& weights) const override {
    if (fake_settings().refuse == Refuse::kActivate) return unavailable("fake: no room on the device");
    ++fake_counters().activated;
    return std::unique_ptr<BoundStep>(std::make_unique<ActivePart>(static_cast<FakeQueue&>(queue), name(), work_, weights));
  }

 private:
  std::vector<Work> work_;
};

/// Lays the values of a part out in a plan.
class PartMaker {
 public:
  PartMaker(const Graph& part, WeightStore& weights)
      : part_(part), weights_(weights), plan_(start_plan(part)), slots_(part.values.size()), is_read_(find_read_values(part)) {}

  Result<Plan> make() {
    for (std::size_t i = 0; i < part_.inputs.size(); ++i)
      add(part_.inputs[i],
          plan_.add_buffer(size_bytes_of(part_.value(part_.inputs[i])), Buffer::Home::kInput, static_cast<int>(i)));
    for (std::size_t i = 0; i < part_.outputs.size(); ++i) {
      const ValueId id = part_.outputs[i].value;
      add(id, plan_.add_buffer(size_bytes_of(part_.value(id)), Buffer::Home::kOutput, static_cast<int>(i)));
    }
    std::vector<Work> work;
    for (const Node& node : part_.nodes) {
      Work& each = work.emplace_back(Work{.node = node});
      for (const ValueId id : node.inputs) {
        SHOAL_ASSIGN_OR_RETURN(Slot slot, slot_of(id));
        each.src.push_back(slot);
      }
      for (const ValueId id : node.outputs) {
        SHOAL_ASSIGN_OR_RETURN(Slot slot, slot_of(id));
        each.dst.push_back(slot);
      }
    }
    std::string name = format("{} nodes on the fake device from {} on", part_.nodes.size(), describe(part_.nodes.front()));
    plan_.steps.push_back(std::make_unique<FakePart>(std::move(name), operands_, std::move(work)));
    return std::move(plan_);
  }

 private:
  void add(ValueId id, BufferId buffer) {
    slots_[at(id)] = {part_.value(id).dtype, part_.value(id).shape, static_cast<int>(operands_.size())};
    operands_.push_back(buffer);
  }
  Result<Slot> slot_of(ValueId id) {
    const Value& value = part_.value(id);
    Slot& slot = slots_[at(id)];
    if (slot.operand >= 0 || slot.weight >= 0) return slot;
    slot = {value.dtype, value.shape};
    if (value.constant) {
      SHOAL_ASSIGN_OR_RETURN(slot.weight, plain_entry(part_, id, weights_));
    } else if (is_read_[at(id)]) {
      add(id, plan_.add_buffer(size_bytes_of(value)));
    }
    return slot;
  }

  const Graph& part_;
  WeightStore& weights_;
  Plan plan_;
  std::vector<Slot> slots_;  // by value
  std::vector<BufferId> operands_;
  const std::vector<bool> is_read_;
};

class FakeBackend : public Backend {
 public:
  std::string identity() const override { return format("fake; channels {}", fake_settings().most_channels); }

  Claims claim(const Graph& graph) const override {
    Claims claims;
    for (const Node& node : graph.nodes) claims.why_not.push_back(why_not(graph, node));
    return claims;
  }

  Result<Plan> prepare(const Graph& part, WeightStore& weights, const Choices&) const override {
    if (fake_settings().refuse == Refuse::kPrepare)
      return unimplemented("fake: {} is not to its taste", describe(part.nodes.front()));
    ++fake_counters().prepared;
    fake_counters().prepared_nodes += static_cast<int>(part.nodes.size());
    AddedWeights added(weights);
    auto plan = PartMaker(part, weights).make();
    if (plan.ok()) added.keep();
    return plan;
  }

  bool has_own_memory() const override { return true; }
  Result<std::unique_ptr<Queue>> open_queue() const override {
    ++fake_counters().asked;
    if (fake_settings().refuse == Refuse::kOpen) return unavailable("fake: the device is gone");
    ++fake_counters().opened;
    return std::unique_ptr<Queue>(std::make_unique<FakeQueue>());
  }

 private:
  static std::string why_not(const Graph& graph, const Node& node) {
    const FakeSettings& settings = fake_settings();
    if (settings.takes) return settings.takes(node) ? "" : "fake: told not to";
    const Operator* const taken[] = {&ops::kConvolution, &ops::kBatchNorm, &ops::kActivation, &ops::kPooling, &ops::kBinary};
    if (std::ranges::count(taken, node.op) == 0) return format("fake: it has no {}", node.op->name);
    const Shape& shape = graph.value(node.outputs.front()).shape;
    if (shape.rank() > 1 && shape[1] > settings.most_channels)
      return format("fake: {} channels, of at most {}", shape[1], settings.most_channels);
    return "";
  }
};

const BackendRegistration kRegistration("fake", [](const ModelOptions&) -> Result<std::shared_ptr<const Backend>> {
  return std::shared_ptr<const Backend>(std::make_shared<FakeBackend>());
});

std::uint64_t number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  SHOAL_CHECK(read.ec == std::errc() && read.ptr == text.data() + text.size());
  return number;
}

}  // namespace

FakeSettings parse_fake_settings(std::string_view text) {
  FakeSettings settings;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const std::string_view key = pair.substr(0, pair.find('=')), value = pair.substr(std::min(pair.size(), key.size() + 1));
    if (key == "refuse") {
      constexpr std::string_view kWords[] = {"nothing", "prepare", "open", "activate", "run"};
      const auto* const word = std::ranges::find(kWords, value);
      SHOAL_CHECK(word != std::end(kWords));
      settings.refuse = static_cast<Refuse>(word - std::begin(kWords));
    } else if (key == "latency_us") {
      settings.latency_us = number_of(value);
    } else if (key == "abort_after") {
      settings.abort_after = number_of(value);
    } else if (key == "most_channels") {
      settings.most_channels = static_cast<std::int64_t>(number_of(value));
    } else {
      SHOAL_CHECK(!"a key of $SHOAL_FAKE");
    }
  }
  return settings;
}

FakeSettings& fake_settings() {
  static FakeSettings settings = [] {
    const char* const wish = std::getenv("SHOAL_FAKE");
    return parse_fake_settings(wish != nullptr ? wish : "");
  }();
  return settings;
}

FakeCounters& fake_counters() {
  static FakeCounters counters;
  return counters;
}

}  // namespace shoal::test
