// Accuracy over time as a picture: one line a scheme.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/demo/scheme_training.hpp"

namespace pith::demo {

struct ChartLine {
  std::string name;
  std::vector<CurvePoint> points;
};

// A PNG file; time is on a logarithmic axis. Throws std::runtime_error where it cannot be written.
void draw_chart(const std::string& path, const std::string& title,
                std::span<const ChartLine> lines);

}  // namespace pith::demo
