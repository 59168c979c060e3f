// shoal classify: the classes of pictures, with a model of the daemon or in this process.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "shm/base/errors.hpp"
#include "shm/base/json_text.hpp"
#include "shm/base/mutex.hpp"
#include "shm/model/model_config.hpp"
#include "shoal/engine.hpp"
#include "shoal/image_classifier.hpp"
#include "shoal/passive_openmp.hpp"
#include "shoal/pool.hpp"
#include "tools/shoal/commands.hpp"
#include "tools/shoal/in_process.hpp"

namespace shoal::tool {
namespace {

constexpr const char* kClassifyAbout =
    "Shows the classes of pictures, with a model of the running daemon (NAME) or of a checkpoint in this process (PATH).";
constexpr const char* kClassifyMore =
    R"(MODEL is a PATH if it contains a '/' or exists as a directory or checkpoint; otherwise it is a NAME. Pictures are prepared as
[preprocess] in model.toml or a preset says:
  imagenet            RGB, shorter side 256, crop 224, mean and deviation of ImageNet (Gluon, torchvision)
  imagenet-bgr-caffe  BGR, shorter side 256, crop 224, minus 104, 117, 123 (Caffe, early MXNet)
  cifar10             RGB, 32, mean and deviation of CIFAR-10
  mnist               gray, 28, 0..1
  none                RGB, the model's size, 0..255

  shoal classify resnet dog.jpg cat.jpg --top-k 3
  shoal classify models/squeezenet11 *.jpg --preset imagenet-bgr-caffe --contexts 4
  shoal classify resnet dog.jpg --json      {"pictures": [{"file", "classes": [{"index", "label", "probability"}]}]})";

constexpr int kContextsOfPool = 4;  // pictures that are decoded here while workers run others

struct ClassifyOptions {
  std::string model, preset, precision;
  std::vector<std::string> files;
  std::size_t top_k = 5;
  int contexts = 0;
  bool json = false;
};

/// Classifies many files on several threads. The results have the order of the files.
///   Threads  thread-safe
class FileQueue {
 public:
  FileQueue(const ImageClassifier& classifier, const std::vector<std::string>& files)
      : classifier_(classifier), files_(files), results_(files.size()) {}

  /// Returns when all are done. Begins no new file after a failure.
  Finish run(int thread_count) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < thread_count; ++i) threads.emplace_back([this] { work(); });
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

  Finish classify(const std::string& file, Classes& classes) const {
    SHOAL_ASSIGN_OR_RETURN(const Image image, Image::read(file));
    auto result = classifier_.classify(image);
    if (!result.ok()) return daemon_failure(result.status().with_context(file));
    classes = *std::move(result);
    return {};
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

Finish classify_with(Runner& runner, const std::string& model, const ClassifyOptions& options,
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

Command make_classify(CLI::App& application) {
  const auto options = std::make_shared<ClassifyOptions>();
  CLI::App* app = application.add_subcommand("classify", kClassifyAbout);
  app->footer(kClassifyMore);
  app->add_option("MODEL", options->model, "NAME in the daemon, or PATH of a checkpoint")->required();
  app->add_option("IMAGE", options->files, "pictures: JPEG, PNG, ...")->required();
  app->add_option("--top-k", options->top_k, "classes per picture (default 5)")->check(CLI::Range(1, 1'000'000));
  app->add_option("--preset", options->preset, "how to prepare pictures, instead of the model's own way");
  app->add_option(
         "--precision", options->precision,
         "with PATH: f32; f32-fast, which allows Winograd; bf16; or auto, the fastest (default: as in model.toml, else f32)")
      ->check(CLI::IsMember({"f32", "f32-fast", "bf16", "auto"}));
  app->add_option("--contexts", options->contexts, "pictures at the same time (default: 1 in this process, 4 with the daemon)")
      ->check(CLI::Range(1, 256));
  app->add_flag("--json", options->json, "print JSON");
  return {app, [options](Invocation& invocation) { return classify(*options, invocation); }};
}

}  // namespace shoal::tool
