#include "tools/shoal/bench/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "shm/base/errors.hpp"
#include "tools/shoal/bench/canvas.hpp"
#include "tools/shoal/bench/report.hpp"
#include "tools/shoal/console.hpp"

namespace shoal::tool {
namespace {

constexpr Color kInk{0.13, 0.13, 0.15}, kFaint{0.45, 0.45, 0.48}, kGrid{0.88, 0.88, 0.90}, kAnswers{0.25, 0.28, 0.33};
constexpr std::array<Color, std::size(kPercentiles)> kColors{Color{0.16, 0.44, 0.73}, Color{0.11, 0.58, 0.43},
                                                             Color{0.83, 0.50, 0.13}, Color{0.72, 0.20, 0.30}};
constexpr double kWidth = 860, kHeight = 600, kLeft = 72, kRight = kWidth - 84;
constexpr double kTimesTop = 84, kTimesBottom = 360, kAnswersTop = 418, kAnswersBottom = 536;
constexpr double kTextSize = 12, kLineHeight = 15;

/// Places numbers between two ends of a line, by their size or by their logarithm.
class Axis {
 public:
  /// Logarithmic if the largest value is more than `most` times the smallest; else it begins with 0 if `has_zero`.
  Axis(std::vector<double> values, double from, double to, double most, bool has_zero) : from_(from), to_(to) {
    std::erase_if(values, [](double value) { return value <= 0; });
    low_ = values.empty() ? 0.1 : *std::ranges::min_element(values);
    high_ = values.empty() ? 1 : *std::ranges::max_element(values);
    is_log_ = high_ > most * low_;
    if (is_log_) {
      low_ /= 1.3;
      high_ *= 1.3;
    } else {
      const double room = has_zero ? high_ * 0.08 : std::max((high_ - low_) * 0.06, high_ * 0.02);
      low_ = has_zero ? 0 : low_ - room;
      high_ += room;
    }
  }

  double place(double value) const {
    const double share = is_log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
    return from_ + share * (to_ - from_);
  }
  /// Round numbers within the axis, about so many if it is not logarithmic.
  std::vector<double> ticks(int about) const {
    std::vector<double> ticks;
    if (is_log_) {
      const bool is_long = high_ / low_ > 300;
      for (double decade = std::pow(10, std::floor(std::log10(low_))); decade <= high_; decade *= 10) {
        for (const double step : {1.0, 2.0, 5.0}) {
          const double tick = decade * step;
          if (tick >= low_ && tick <= high_ && (step == 1.0 || !is_long)) ticks.push_back(tick);
        }
      }
      return ticks;
    }
    const double rough = (high_ - low_) / about, decade = std::pow(10, std::floor(std::log10(rough)));
    const double step = decade * (rough / decade < 1.5 ? 1 : rough / decade < 3.5 ? 2 : rough / decade < 7.5 ? 5 : 10);
    for (double tick = std::ceil(low_ / step) * step; tick <= high_; tick += step) ticks.push_back(tick);
    return ticks;
  }

 private:
  double from_, to_, low_ = 0, high_ = 1;
  bool is_log_ = false;
};

using Value = std::function<std::optional<double>(const Measurement&)>;

std::vector<double> values_of(std::span<const Measurement> measurements, const Value& value) {
  std::vector<double> values;
  for (const Measurement& measured : measurements) {
    if (const auto one = value(measured)) values.push_back(*one);
  }
  return values;
}

Value percentile(double fraction) {
  return [fraction](const Measurement& measured) -> std::optional<double> {
    if (measured.total_ns.count() == 0) return std::nullopt;
    return static_cast<double>(measured.total_ns.quantile(fraction)) / 1e6;
  };
}

/// Lines at round numbers, with these numbers at the left.
void draw_grid(Canvas& canvas, const Axis& y, int lines) {
  for (const double tick : y.ticks(lines)) {
    const double place = y.place(tick);
    canvas.line({kLeft, place}, {kRight, place}, kGrid, 1);
    canvas.text({kLeft - 8, place + 4}, number_text(tick, "%.6g"), kTextSize, kFaint, Align::kRight);
  }
}

/// Returns where the last point lies.
std::optional<Point> draw_curve(Canvas& canvas, std::span<const Measurement> measurements, const Axis& x, const Axis& y,
                                const Value& value, Color color) {
  std::optional<Point> last;
  for (const Measurement& measured : measurements) {
    const auto one = value(measured);
    if (!one) continue;
    const Point point{x.place(measured.load.x()), y.place(*one)};
    if (last) canvas.line(*last, point, color, 2);
    canvas.dot(point, 3.5, color);
    last = point;
  }
  return last;
}

/// The measured loads below both panels, except those that would stand on another.
void draw_loads(Canvas& canvas, std::span<const Measurement> measurements, const Axis& x) {
  double free_from = 0;
  for (const Measurement& measured : measurements) {
    const double place = x.place(measured.load.x());
    const std::string text = number_text(measured.load.x(), "%.6g");
    const double half = 3.6 * static_cast<double>(text.size()) + 4;
    canvas.line({place, kAnswersBottom}, {place, kAnswersBottom + 4}, kFaint, 1);
    if (place - half < free_from) continue;
    canvas.text({place, kAnswersBottom + 18}, text, kTextSize, kFaint, Align::kCenter);
    free_from = place + half;
  }
  const bool is_open = measurements.front().load.is_open();
  canvas.text({(kLeft + kRight) / 2, kAnswersBottom + 44}, is_open ? "requests per second, sent" : "requests in flight",
              kTextSize + 1, kInk, Align::kCenter);
}

void draw_times(Canvas& canvas, std::span<const Measurement> measurements, const Axis& x) {
  std::vector<double> all;
  for (const Percentile& one : kPercentiles) {
    const auto values = values_of(measurements, percentile(one.fraction));
    all.insert(all.end(), values.begin(), values.end());
  }
  const Axis y(all, kTimesBottom, kTimesTop, 20, true);
  canvas.text({kLeft, kTimesTop - 12}, "time of a request, milliseconds", kTextSize + 1, kInk);
  draw_grid(canvas, y, 6);
  double label_below = kTimesBottom + 2 * kLineHeight;  // names of lower curves come first and push the next ones up
  for (std::size_t i = 0; i < std::size(kPercentiles); ++i) {
    const auto last = draw_curve(canvas, measurements, x, y, percentile(kPercentiles[i].fraction), kColors[i]);
    if (!last) continue;
    label_below = std::min(last->y + 4, label_below - kLineHeight);
    canvas.text({kRight + 10, label_below}, kPercentiles[i].name, kTextSize + 1, kColors[i]);
  }
}

void draw_answers(Canvas& canvas, std::span<const Measurement> measurements, const Axis& x) {
  const Value answers = [](const Measurement& measured) { return std::optional(measured.answers_per_s()); };
  const Axis y(values_of(measurements, answers), kAnswersBottom, kAnswersTop, 1e9, true);
  canvas.text({kLeft, kAnswersTop - 12}, "answers per second", kTextSize + 1, kInk);
  draw_grid(canvas, y, 3);
  draw_curve(canvas, measurements, x, y, answers, kAnswers);
}

}  // namespace

Status check_plot_file(const std::string& file) {
  if (file.ends_with(".png") || file.ends_with(".svg")) return {};
  return invalid_argument("--plot {}: the name must end with .png or .svg", file);
}

Status write_plot(const std::filesystem::path& file, const std::string& model, std::span<const Measurement> measurements) {
  Canvas canvas(file.extension() == ".svg" ? Canvas::Format::kSvg : Canvas::Format::kPng, kWidth, kHeight);
  const bool is_open = measurements.front().load.is_open();
  canvas.text({kLeft, 32}, format("{}: {} loop", printable(model), is_open ? "open" : "closed"), 18, kInk);
  const Value load = [](const Measurement& measured) { return std::optional(measured.load.x()); };
  std::vector<Measurement> sorted(measurements.begin(), measurements.end());
  std::ranges::sort(sorted, {}, [](const Measurement& measured) { return measured.load.x(); });
  const Axis x(values_of(sorted, load), kLeft, kRight, 8, false);
  draw_times(canvas, sorted, x);
  draw_answers(canvas, sorted, x);
  draw_loads(canvas, sorted, x);
  SHOAL_ASSIGN_OR_RETURN(const std::string bytes, canvas.finish());
  return write_file(file, bytes);
}

}  // namespace shoal::tool
