#include "tools/demo/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/demo/picture.hpp"

namespace pith::demo {
namespace {

constexpr int chart_width = 960;
constexpr int chart_height = 600;
constexpr int margin_left = 90;
constexpr int margin_right = 40;
constexpr int margin_top = 60;
constexpr int margin_bottom = 70;
constexpr int text_scale = 2;
constexpr double accuracy_least = 0.6;

constexpr std::uint8_t ink_colour = 1;
constexpr std::uint8_t grid_colour = 2;
constexpr std::uint8_t first_line = 3;
constexpr std::size_t line_colours = 8;

// White, ink, grid; then the lines, in colours that most colour-blind people can tell apart (Okabe
// and Ito).
const std::vector<Colour> chart_palette = {
    {255, 255, 255}, {40, 40, 40},    {220, 220, 220}, {0, 0, 0},     {86, 180, 233}, {230, 159, 0},
    {0, 158, 115},   {204, 121, 167}, {213, 94, 0},    {0, 114, 178}, {240, 228, 66}};

std::uint8_t colour_of(std::size_t line) {
  return static_cast<std::uint8_t>(first_line + line % line_colours);
}

// Between its points a line is straight.
double accuracy_at(std::span<const CurvePoint> points, double seconds) {
  for (std::size_t i = 1; i < points.size(); ++i) {
    const CurvePoint& a = points[i - 1];
    const CurvePoint& b = points[i];
    if (seconds > b.seconds) continue;
    const double share =
        b.seconds > a.seconds ? (seconds - a.seconds) / (b.seconds - a.seconds) : 0;
    return a.accuracy + share * (b.accuracy - a.accuracy);
  }
  return points.back().accuracy;
}

class Chart {
 public:
  Chart(double first_s, double last_s)
      : picture_(chart_width, chart_height, chart_palette),
        log_first_(std::log10(first_s)),
        log_last_(std::max(std::log10(last_s), log_first_ + 0.1)) {}

  double x_of(double seconds) const {
    const double share = (std::log10(seconds) - log_first_) / (log_last_ - log_first_);
    return margin_left + std::clamp(share, 0.0, 1.0) * (chart_width - margin_left - margin_right);
  }
  static double y_of(double accuracy) {
    const double share = (accuracy - accuracy_least) / (1.0 - accuracy_least);
    return chart_height - margin_bottom -
           std::clamp(share, 0.0, 1.0) * (chart_height - margin_top - margin_bottom);
  }

  void axes(const std::string& title) {
    picture_.text(margin_left, 20, title, text_scale, ink_colour);
    for (int percent = 60; percent <= 100; percent += 5) {
      const double y = y_of(percent / 100.0);
      picture_.line(margin_left, y, chart_width - margin_right, y, 1, grid_colour);
      picture_.text(20, static_cast<int>(y) - 7, fmt::format("{:3} %", percent), text_scale,
                    ink_colour);
    }
    for (int decade = -2; decade <= 4; ++decade) {
      for (const int digit : {1, 2, 5}) {
        const double seconds = digit * std::pow(10.0, decade);
        const double log = std::log10(seconds);
        if (log < log_first_ || log > log_last_) continue;
        const double x = x_of(seconds);
        picture_.line(x, margin_top, x, chart_height - margin_bottom, 1, grid_colour);
        const std::string label = fmt::format("{:g}", seconds);
        picture_.text(static_cast<int>(x) - static_cast<int>(label.size()) * 6,
                      chart_height - margin_bottom + 12, label, text_scale, ink_colour);
      }
    }
    picture_.line(margin_left, margin_top, margin_left, chart_height - margin_bottom, 2,
                  ink_colour);
    picture_.line(margin_left, chart_height - margin_bottom, chart_width - margin_right,
                  chart_height - margin_bottom, 2, ink_colour);
    picture_.text(margin_left, chart_height - 30,
                  "seconds of training; accuracy on digits not trained on", text_scale, ink_colour);
  }

  void add(const ChartLine& line, std::size_t number) {
    const std::uint8_t colour = colour_of(number);
    for (std::size_t i = 2; i < line.points.size(); ++i) {
      const CurvePoint& a = line.points[i - 1];
      const CurvePoint& b = line.points[i];
      picture_.line(x_of(a.seconds), y_of(a.accuracy), x_of(b.seconds), y_of(b.accuracy), 3,
                    colour);
    }
    const int y = chart_height - margin_bottom - 190 + static_cast<int>(number) * 22;
    constexpr int legend_x = chart_width - margin_right - 260;
    picture_.box(legend_x - 8, y - 4, 260, 22, 0);
    picture_.box(legend_x, y + 5, 30, 4, colour);
    picture_.text(legend_x + 40, y, line.name, text_scale, ink_colour);
  }

  void mark(const ChartLine& line, std::size_t number) {
    for (const ChartMark& mark : line.marks) {
      const double y = y_of(accuracy_at(line.points, mark.seconds));
      const auto x = static_cast<int>(x_of(mark.seconds));
      picture_.box(x - 5, static_cast<int>(y) - 5, 10, 10, colour_of(number));
      picture_.text(x + 8, static_cast<int>(y) + 8, mark.text, 1, ink_colour);
    }
  }

  const Picture& picture() const { return picture_; }

 private:
  Picture picture_;
  double log_first_;
  double log_last_;
};

}  // namespace

void draw_chart(const std::string& path, const std::string& title,
                std::span<const ChartLine> lines) {
  double first_s = 1e9;
  double last_s = 0.0;
  for (const ChartLine& line : lines) {
    if (line.points.size() < 2) continue;
    first_s = std::min(first_s, line.points[1].seconds);  // the first point precedes all training
    last_s = std::max(last_s, line.points.back().seconds);
  }
  if (last_s <= 0.0) return;
  Chart chart(std::max(first_s, 0.01), last_s);
  chart.axes(title);
  for (std::size_t i = 0; i < lines.size(); ++i) chart.add(lines[i], i);
  for (std::size_t i = 0; i < lines.size(); ++i) chart.mark(lines[i], i);
  chart.picture().write_png(path);
}

}  // namespace pith::demo
