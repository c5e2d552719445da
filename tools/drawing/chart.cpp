#include "tools/drawing/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/drawing/svg.hpp"

namespace pith_drawing {

namespace {

constexpr double left = 90;
constexpr double top = 60;
constexpr double plot_width = 760;
constexpr double plot_height = 520;
constexpr double legend_width = 260;
constexpr double row_height = 22;

// Colours that most colour-blind people can tell apart (Okabe and Ito); more lines are dashed.
constexpr std::array colours = {"#000000", "#56b4e9", "#e69f00", "#009e73",
                                "#cc79a7", "#d55e00", "#0072b2"};
constexpr std::array dashes = {"none", "7 3", "2 3"};

// Logarithms of the ends of an axis.
struct Span {
  double low = 0;
  double high = 1;

  double share(double value) const { return (std::log(value) - low) / (high - low); }
};

template <class Value>
Span span_of(const Chart& chart, Value value) {
  Span span{INFINITY, -INFINITY};
  for (const ChartLine& line : chart.lines) {
    for (const auto* points : {&line.points, &line.marks}) {
      for (const Point& point : *points) {
        span.low = std::min(span.low, std::log(value(point)));
        span.high = std::max(span.high, std::log(value(point)));
      }
    }
  }
  if (!(span.low <= span.high)) return {};
  if (span.high - span.low < 1e-9) span.high = span.low + 1;
  return span;
}

// Powers of the base in the span, at most about ten of them.
std::vector<double> ticks(const Span& span, double base) {
  const double one = std::log(base);
  const double first = std::ceil(span.low / one - 1e-9);
  const double last = std::floor(span.high / one + 1e-9);
  const double step = std::max(1.0, std::ceil((last - first) / 10));
  std::vector<double> found;
  for (double power = first; power <= last; power += step) found.push_back(std::pow(base, power));
  return found;
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart)
      : chart_(chart),
        x_(span_of(chart, [](const Point& p) { return p.x; })),
        y_(span_of(chart, [](const Point& p) { return p.y; })),
        svg_(left + plot_width + legend_width, top + plot_height + 50,
             ".grid{stroke:#ddd} .line{fill:none;stroke-width:2} .note{fill:#666}") {}

  std::string draw() {
    svg_.add("<text x=\"{}\" y=\"22\" font-size=\"15\">{}</text>\n", left, escaped(chart_.title));
    svg_.add("<text class=\"note\" x=\"{}\" y=\"42\">{}</text>\n", left, escaped(chart_.subtitle));
    axes();
    for (std::size_t i = 0; i < chart_.lines.size(); ++i) line(i);
    return svg_.take();
  }

 private:
  double x(double value) const { return left + x_.share(value) * plot_width; }
  double y(double value) const { return top + (1 - y_.share(value)) * plot_height; }

  void axes() {
    for (const double tick : ticks(x_, chart_.x_base)) {
      svg_.add("<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>",
               x(tick), top, top + plot_height);
      svg_.add("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(tick),
               top + plot_height + 18, escaped(chart_.x_name(tick)));
    }
    for (const double tick : ticks(y_, 10)) {
      svg_.add("<line class=\"grid\" x1=\"{1}\" y1=\"{0:.1f}\" x2=\"{2}\" y2=\"{0:.1f}\"/>",
               y(tick), left, left + plot_width);
      svg_.add("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 8, y(tick) + 4,
               escaped(chart_.y_name(tick)));
    }
  }

  void line(std::size_t i) {
    const ChartLine& line = chart_.lines[i];
    const char* colour = colours[i % colours.size()];
    const char* dash = dashes[std::min(i / colours.size(), dashes.size() - 1)];
    svg_.add(
        "<g><title>{}</title><polyline class=\"line\" stroke=\"{}\" stroke-dasharray=\"{}\" "
        "points=\"",
        escaped(line.name), colour, dash);
    for (const Point& point : line.points) svg_.add("{:.1f},{:.1f} ", x(point.x), y(point.y));
    svg_.add_text("\"/>");
    for (const Point& mark : line.marks) {
      svg_.add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" fill=\"{}\"/>", x(mark.x), y(mark.y),
               colour);
    }
    const double at = top + row_height * (static_cast<double>(i) + 0.5);
    const double from = left + plot_width + 20;
    svg_.add(
        "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
        from, at, from + 30, at, colour, dash);
    svg_.add("<text x=\"{}\" y=\"{:.1f}\">{}</text></g>\n", from + 38, at + 4, escaped(line.name));
  }

  const Chart& chart_;
  const Span x_;
  const Span y_;
  Svg svg_;
};

}  // namespace

std::string draw(const Chart& chart) { return Drawing(chart).draw(); }

}  // namespace pith_drawing
