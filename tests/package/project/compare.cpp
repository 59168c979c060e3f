// Classifies a picture through the daemon and in this process, and says whether both agree: all three libraries in one program.
//
//   compare NAME PATH PICTURE
#include <cstdio>

#include "shoal/engine.hpp"
#include "shoal/image_classifier.hpp"
#include "shoal/passive_openmp.hpp"
#include "shoal/pool.hpp"

namespace {

shoal::ClassScore best_of(const shoal::Client& runner, const char* model, const shoal::Image& image) {
  const auto classifier = shoal::ImageClassifier::create(runner, model).value();
  return classifier.classify(image).value().front();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 2;
  shoal::ensure_passive_openmp(argv);
  const shoal::Image image = shoal::Image::read(argv[3]).value();
  shoal::Pool pool = shoal::Pool::connect().value();
  shoal::Engine engine = shoal::Engine::load(argv[2]).value();
  const shoal::ClassScore by_pool = best_of(pool, argv[1], image);
  const shoal::ClassScore by_engine = best_of(engine, "", image);
  std::printf("%s %s\n", by_pool.label.c_str(), by_engine.label.c_str());
  return by_pool.index == by_engine.index && by_pool.probability == by_engine.probability ? 0 : 1;
} catch (const shoal::Error& error) {  // thrown by one library, caught here
  std::fprintf(stderr, "%s\n", error.what());
  return 3;
}
