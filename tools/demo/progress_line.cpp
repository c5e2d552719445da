#include "tools/demo/progress_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace pith::demo {
namespace {

constexpr auto redraw_interval = std::chrono::milliseconds(50);
constexpr std::size_t bar_width = 24;
constexpr std::size_t columns_most = 79;  // some terminals wrap after the last column

// "[#####-----]", for a fraction of 0 to 1.
std::string bar(double fraction) {
  const auto full =
      static_cast<std::size_t>(std::lround(fraction * static_cast<double>(bar_width)));
  return fmt::format("[{:#<{}}{:-<{}}]", "", full, "", bar_width - full);
}

}  // namespace

ProgressLine::ProgressLine(bool shown, std::FILE* out)
    : shown_(shown && isatty(fileno(out)) == 1), out_(out) {}

void ProgressLine::draw(std::string_view label, std::size_t done, std::size_t steps) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < redraw_interval) return;
  drawn_ = now;
  const std::string tail =
      fmt::format("  {}  {:3} of {} steps",
                  bar(static_cast<double>(done) / static_cast<double>(steps)), done, steps);
  const std::size_t room = columns_most - std::min(columns_most, tail.size());
  fmt::print(out_, "\r{}{}", label.substr(0, room), tail);
  std::fflush(out_);
}

void ProgressLine::erase() {
  if (!shown_) return;
  fmt::print(out_, "\r\x1b[K");
  std::fflush(out_);
}

}  // namespace pith::demo
