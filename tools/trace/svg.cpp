#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "picture.hpp"
#include "tools/drawing/svg.hpp"

namespace pith_trace {

namespace {

using pith_drawing::escaped;

constexpr double left = 70;
constexpr double top = 60;
constexpr double drawn_width = 1400;
constexpr double lane_height = 48;
constexpr double bar_height = 12;

constexpr std::string_view styles =
    ".lane{stroke:#bbb} .grid{stroke:#eee} .message{stroke:#36c;stroke-opacity:.6;fill:none}\n"
    ".failed{stroke:#c00} .kernel{fill:#e80} .receive{fill:#9cd;fill-opacity:.6} "
    ".call{fill:#f4f4f4}";

class Drawing {
 public:
  Drawing(const Picture& picture, std::size_t most_messages)
      : picture_(picture),
        most_messages_(most_messages),
        span_us_(std::max(picture.end_us, 1e-3)),
        svg_(left + drawn_width + 30, bottom() + 40, styles) {}

  std::string draw() {
    head();
    axis();
    for (const RankTrace& rank : picture_.ranks) lane(rank);
    messages();
    return svg_.take();
  }

 private:
  double x(double time_us) const { return left + time_us / span_us_ * drawn_width; }
  static double y(int rank) { return top + (rank + 0.5) * lane_height; }
  double bottom() const { return top + lane_height * static_cast<double>(picture_.ranks.size()); }

  void head() {
    svg_.add_text(
        R"(<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" )"
        R"(markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#36c"/></marker></defs>)"
        "\n");
    const std::size_t all = picture_.messages.size();
    const std::string some =
        all > most_messages_ ? fmt::format(", the first {} drawn", most_messages_) : "";
    svg_.add("<text x=\"{}\" y=\"20\" font-size=\"15\">{}</text>\n", left, escaped(picture_.title));
    svg_.add(
        "<text x=\"{}\" y=\"38\" fill=\"#666\">{:.3f} us, {} messages{}; orange: kernels, blue: "
        "receives that wait, arrows: messages</text>\n",
        left, picture_.end_us, all, some);
  }

  // A round step of 1, 2 or 5 times a power of ten; about ten per axis.
  double tick_us() const {
    const double rough = span_us_ / 10;
    const double ten = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (ten * factor >= rough) return ten * factor;
    }
    return ten * 10;
  }

  void axis() {
    const double tick = tick_us();
    for (int i = 0; i * tick <= span_us_; ++i) {
      const double at = x(i * tick);
      svg_.add("<line class=\"grid\" x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\"/>", at,
               top, bottom());
      svg_.add("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{:g}</text>\n", at,
               bottom() + 16, i * tick);
    }
    svg_.add("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#666\">us</text>\n",
             left + drawn_width + 25, bottom() + 16);
  }

  void bar(const Step& step, int rank, const char* style, double height) {
    const double width = std::max(x(step.end_us) - x(step.begin_us), 0.5);
    svg_.add("<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\">", style,
             x(step.begin_us), y(rank) - height / 2, width, height);
    const std::string peer = step.peer >= 0 ? fmt::format(" from {}", step.peer) : "";
    svg_.add("<title>{}{}: {} bytes, {:.3f} to {:.3f} us</title></rect>\n",
             escaped(step.name.empty() ? step.op : step.name), peer, step.bytes, step.begin_us,
             step.end_us);
  }

  void lane(const RankTrace& rank) {
    svg_.add(
        "<g id=\"rank{0}\"><text x=\"{1}\" y=\"{2:.1f}\" text-anchor=\"end\">rank {0}</text>\n",
        rank.rank, left - 8, y(rank.rank) + 4);
    const auto bars = [&](const char* op, double height) {
      for (const Step& step : rank.steps) {
        if (step.op == op) bar(step, rank.rank, op, height);
      }
    };
    bars("call", lane_height * 0.6);
    svg_.add("<line class=\"lane\" x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\"/>\n", left,
             left + drawn_width, y(rank.rank));
    bars("receive", bar_height / 2);
    bars("kernel", bar_height);
    svg_.add_text("</g>\n");
  }

  void messages() {
    svg_.add_text("<g id=\"messages\">\n");
    for (std::size_t i = 0; i < std::min(picture_.messages.size(), most_messages_); ++i) {
      const Message& message = picture_.messages[i];
      const Step& sent = picture_.ranks[static_cast<std::size_t>(message.from)].steps[message.send];
      const Step& got = picture_.ranks[static_cast<std::size_t>(message.to)].steps[message.receive];
      svg_.add(
          "<line class=\"message{}\" x1=\"{:.2f}\" y1=\"{:.1f}\" x2=\"{:.2f}\" y2=\"{:.1f}\" "
          "marker-end=\"url(#tip)\">",
          sent.failed || got.failed ? " failed" : "", x(sent.begin_us), y(message.from),
          x(got.end_us), y(message.to));
      svg_.add(
          "<title>rank {} to {}, lane {}, step {}: {} bytes, {:.3f} to {:.3f} us</title></line>\n",
          message.from, message.to, sent.lane, sent.step, sent.bytes, sent.begin_us, got.end_us);
    }
    svg_.add_text("</g>\n");
  }

  const Picture& picture_;
  const std::size_t most_messages_;
  const double span_us_;
  pith_drawing::Svg svg_;
};

}  // namespace

std::string svg(const Picture& picture, std::size_t most_messages) {
  return Drawing(picture, most_messages).draw();
}

}  // namespace pith_trace
