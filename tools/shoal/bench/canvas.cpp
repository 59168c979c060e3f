#include "tools/shoal/bench/canvas.hpp"

#include <cairo/cairo-svg.h>
#include <cairo/cairo.h>

#include <cmath>
#include <numbers>

#include "shm/base/errors.hpp"

namespace shoal::tool {
namespace {

constexpr double kPixelsPerPoint = 2;

cairo_status_t append(void* closure, const unsigned char* data, unsigned length) try {
  static_cast<std::string*>(closure)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
} catch (const std::bad_alloc&) {
  return CAIRO_STATUS_NO_MEMORY;
}

}  // namespace

Canvas::Canvas(Format format, double width, double height) : format_(format) {
  if (format == Format::kSvg) {
    surface_ = ::cairo_svg_surface_create_for_stream(append, &bytes_, width, height);
  } else {
    surface_ = ::cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(std::lround(width * kPixelsPerPoint)),
                                            static_cast<int>(std::lround(height * kPixelsPerPoint)));
    ::cairo_surface_set_device_scale(surface_, kPixelsPerPoint, kPixelsPerPoint);
  }
  context_ = ::cairo_create(surface_);
  ::cairo_set_source_rgb(context_, 1, 1, 1);
  ::cairo_paint(context_);
  ::cairo_set_line_join(context_, CAIRO_LINE_JOIN_ROUND);
  ::cairo_set_line_cap(context_, CAIRO_LINE_CAP_ROUND);
  ::cairo_select_font_face(context_, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
}

Canvas::~Canvas() {
  ::cairo_destroy(context_);
  ::cairo_surface_destroy(surface_);
}

void Canvas::line(Point from, Point to, Color color, double width) {
  ::cairo_set_source_rgb(context_, color.red, color.green, color.blue);
  ::cairo_set_line_width(context_, width);
  ::cairo_move_to(context_, from.x, from.y);
  ::cairo_line_to(context_, to.x, to.y);
  ::cairo_stroke(context_);
}

void Canvas::dot(Point center, double radius, Color color) {
  ::cairo_set_source_rgb(context_, color.red, color.green, color.blue);
  ::cairo_arc(context_, center.x, center.y, radius, 0, 2 * std::numbers::pi);
  ::cairo_fill(context_);
}

void Canvas::text(Point baseline, const std::string& text, double size, Color color, Align align) {
  ::cairo_set_font_size(context_, size);
  cairo_text_extents_t extents;
  ::cairo_text_extents(context_, text.c_str(), &extents);
  const double shift = align == Align::kLeft ? 0 : align == Align::kCenter ? extents.x_advance / 2 : extents.x_advance;
  ::cairo_set_source_rgb(context_, color.red, color.green, color.blue);
  ::cairo_move_to(context_, baseline.x - shift, baseline.y);
  ::cairo_show_text(context_, text.c_str());
}

Result<std::string> Canvas::finish() {
  cairo_status_t status = ::cairo_status(context_);
  if (status == CAIRO_STATUS_SUCCESS && format_ == Format::kPng)
    status = ::cairo_surface_write_to_png_stream(surface_, append, &bytes_);
  ::cairo_surface_finish(surface_);
  if (status == CAIRO_STATUS_SUCCESS) status = ::cairo_surface_status(surface_);
  if (status != CAIRO_STATUS_SUCCESS) return failed_precondition("draw: {}", ::cairo_status_to_string(status));
  return std::move(bytes_);
}

}  // namespace shoal::tool
