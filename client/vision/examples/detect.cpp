// Finds the objects in a picture with a detector of the local daemon, and draws their boxes.
//
//   SHOAL_DIR=/tmp/shoal shoald --model ssd=models/ssd &
//   SHOAL_DIR=/tmp/shoal example_detect ssd street.jpg boxes.png
#include <cstdio>

#include "shoal/object_detector.hpp"
#include "shoal/pool.hpp"

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s MODEL PICTURE BOXES.png\n", argv[0]);
    return 2;
  }
  shoal::Pool pool = shoal::Pool::connect().value();
  const auto detector = shoal::ObjectDetector::create(pool, argv[1], {.threshold = 0.5f}).value();
  const shoal::Image picture = shoal::Image::read(argv[2]).value();
  const shoal::Detections detections = detector.detect(picture).value();
  for (const auto& [index, label, score, box] : detections)
    std::printf("%s %.2f: (%.0f, %.0f) to (%.0f, %.0f)\n", label.c_str(), static_cast<double>(score), static_cast<double>(box.x0),
                static_cast<double>(box.y0), static_cast<double>(box.x1), static_cast<double>(box.y1));
  if (const shoal::Status written = shoal::draw_detections(picture, detections).value().write(argv[3]); !written.ok())
    throw shoal::Error(written);
  return 0;
} catch (const shoal::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
