// Canvas: a drawing that becomes a PNG or an SVG. The only code that knows cairo.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shoal/result.hpp"

struct _cairo;
struct _cairo_surface;

namespace shoal::tool {

struct Color {
  double red = 0, green = 0, blue = 0;
};
struct Point {
  double x = 0, y = 0;
};
enum class Align { kLeft, kCenter, kRight };

/// Lengths are in points, from the upper left corner. A PNG has two pixels per point.
///   Threads  thread-bound
class Canvas {
 public:
  enum class Format { kPng, kSvg };
  Canvas(Format format, double width, double height);
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;
  ~Canvas();

  void line(Point from, Point to, Color color, double width);
  void dot(Point center, double radius, Color color);
  /// Writes UTF-8 text; `baseline` is where its letters stand.
  void text(Point baseline, const std::string& text, double size, Color color, Align align = Align::kLeft);

  /// The bytes of the file. Ends the drawing. Errors: kFailedPrecondition (out of memory).
  Result<std::string> finish();

 private:
  Format format_;
  std::string bytes_;
  _cairo_surface* surface_ = nullptr;
  _cairo* context_ = nullptr;
};

}  // namespace shoal::tool
