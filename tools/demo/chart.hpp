// Draws accuracy over time, one line per scheme.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/demo/scheme_training.hpp"

namespace pith::demo {

// A text beside the line at this time.
struct ChartMark {
  double seconds;
  std::string text;
};

struct ChartLine {
  std::string name;
  std::vector<CurvePoint> points;
  std::vector<ChartMark> marks = {};
};

// Writes a PNG file with a logarithmic time axis. Throws std::runtime_error if it cannot be
// written.
void draw_chart(const std::string& path, const std::string& title,
                std::span<const ChartLine> lines);

}  // namespace pith::demo
