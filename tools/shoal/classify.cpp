// shoal-classify: what `shoal classify` becomes. Shows the classes of pictures, with a model of the daemon or in this process.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/base/mutex.hpp"
#include "shm/model/model_config.hpp"
#include "shoal/engine.hpp"
#include "shoal/image_classifier.hpp"
#include "shoal/passive_openmp.hpp"
#include "shoal/pool.hpp"
#include "tools/shoal/classify_options.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/in_process.hpp"

namespace shoal::tool {
namespace {

constexpr int kContextsOfPool = 4;  // pictures that are decoded here while workers run others

/// Classifies many files on several threads. The results have the order of the files.
///   Threads  thread-safe
class FileQueue {
 public:
  FileQueue(const ImageClassifier& classifier, const std::vector<std::string>& files)
      : classifier_(classifier), files_(files), results_(files.size()) {}

  /// Returns when all are done. Begins no new file after a failure.
  Finish run(int thread_count) {
    std::vector<std::jthread> threads;
    try {
      while (std::cmp_less(threads.size(), thread_count)) threads.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      if (threads.empty()) return no_thread(error);  // else those that started do all the work
    }
    show_progress();
    threads.clear();
    const MutexLock lock(mutex_);
    return failure_;
  }
  /// One entry per file, in their order. Complete after run() has succeeded.
  const std::vector<Classes>& results() const { return results_; }

 private:
  void work() {
    for (std::size_t i = next_++; i < files_.size(); i = next_++) {
      Finish finish = classify(files_[i], results_[i]);
      const MutexLock lock(mutex_);
      if (!finish.status.ok()) {
        if (i < failed_at_)
          failed_at_ = i, failure_ = std::move(finish);  // keep the error of the first file, whichever thread was faster
        next_ = files_.size();
      }
      ++done_;
      changed_.notify_one();
    }
  }

  Finish classify(const std::string& file, Classes& classes) const try {
    SHOAL_ASSIGN_OR_RETURN(const Image image, Image::read(file));
    auto result = classifier_.classify(image);
    if (!result.ok()) return daemon_failure(result.status().with_context(file));
    classes = *std::move(result);
    return {};
  } catch (const std::bad_alloc&) {
    return out_of_memory(file);
  }

  void show_progress() {
    Progress progress("classifying", files_.size());
    const MutexLock lock(mutex_);
    while (done_ < files_.size() && failure_.status.ok()) {
      changed_.wait(mutex_);
      progress.show(done_);
    }
  }

  const ImageClassifier& classifier_;
  const std::vector<std::string>& files_;
  std::atomic<std::size_t> next_{0};
  Mutex mutex_;
  Condition changed_;
  std::vector<Classes> results_;  // each thread writes the entries of its files
  std::size_t done_ SHOAL_GUARDED_BY(mutex_) = 0, failed_at_ SHOAL_GUARDED_BY(mutex_) = SIZE_MAX;
  Finish failure_ SHOAL_GUARDED_BY(mutex_);
};

void print_json(const std::vector<std::string>& files, const std::vector<Classes>& all) {
  nlohmann::json pictures = nlohmann::json::array();
  for (std::size_t i = 0; i < files.size(); ++i) {
    nlohmann::json classes = nlohmann::json::array();
    for (const ClassScore& score : all[i])
      classes.push_back({{"index", score.index}, {"label", score.label}, {"probability", score.probability}});
    pictures.push_back({{"file", files[i]}, {"classes", classes}});
  }
  std::printf("%s\n", json_text(nlohmann::json{{"pictures", pictures}}).c_str());
}

void print_table(const std::vector<std::string>& files, const std::vector<Classes>& all) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const ClassScore& score : all[i]) {
      std::array<char, 16> percent{};
      std::snprintf(percent.data(), percent.size(), "%.1f %%", 100 * static_cast<double>(score.probability));
      rows.push_back({&score == &all[i].front() ? files[i] : "", percent.data(),
                      score.label.empty() ? format("class {}", score.index) : score.label});
    }
  }
  std::fputs(align_columns(rows, {false, true, false}).c_str(), stdout);
}

Finish classify_with(const Client& runner, const std::string& model, const ClassifyOptions& options,
                     const std::optional<Preprocess>& preprocess, int contexts, Invocation& invocation) {
  auto classifier = ImageClassifier::create(runner, model, {.preprocess = preprocess, .top_k = options.top_k});
  if (!classifier.ok()) return daemon_failure(classifier.status());
  for (const std::string& warning : classifier->warnings()) invocation.console.warn(warning);
  invocation.console.hold_library_messages();
  const int threads = static_cast<int>(std::min(options.files.size(), static_cast<std::size_t>(contexts)));
  FileQueue queue(*classifier, options.files);
  Finish finish = queue.run(threads);
  if (!finish.status.ok()) return finish;
  options.json ? print_json(options.files, queue.results()) : print_table(options.files, queue.results());
  return {};
}

Finish classify(const ClassifyOptions& options, Invocation& invocation) {
  std::optional<Preprocess> preprocess;
  if (!options.preset.empty()) {
    auto preset = preprocess_preset(options.preset);
    if (!preset.ok()) return usage_failure(preset.status().with_context("--preset"));
    preprocess = *std::move(preset);
  }
  if (is_path(options.model)) {
    ensure_passive_openmp(invocation.argv);
    const int contexts = std::max(options.contexts, 1);
    SHOAL_ASSIGN_OR_RETURN(Engine engine,
                           load_for_pictures(options.model, {.precision = options.precision, .contexts = contexts}, preprocess));
    for (const std::string& warning : engine.warnings()) invocation.console.warn(warning);
    return classify_with(engine, "", options, preprocess, contexts, invocation);
  }
  if (!options.precision.empty()) {
    return usage_failure(invalid_argument(
        "--precision works only with a PATH; '{}' is a model of the daemon, which uses the precision in model.toml",
        options.model));
  }
  auto pool = Pool::connect();
  if (!pool.ok()) return daemon_failure(pool.status());
  return classify_with(*pool, options.model, options, preprocess, options.contexts > 0 ? options.contexts : kContextsOfPool,
                       invocation);
}

}  // namespace
}  // namespace shoal::tool

int main(int argc, char** argv) {
  using namespace shoal::tool;
  CLI::App application("", "shoal");
  ClassifyOptions options;
  const Command classify{add_classify(application, options),
                         [&](Invocation& invocation) { return shoal::tool::classify(options, invocation); }};
  return run_command_line(application, std::span(&classify, 1), argc, argv);
}
