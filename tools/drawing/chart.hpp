// Lines over two logarithmic axes, with a legend.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace pith_drawing {

struct Point {
  double x = 0;
  double y = 0;
};

struct ChartLine {
  std::string name;
  std::vector<Point> points;
  std::vector<Point> marks;  // drawn as dots
};

// All coordinates are more than zero.
struct Chart {
  std::string title;
  std::string subtitle;
  std::function<std::string(double)> x_name;  // of a place on the axis
  std::function<std::string(double)> y_name;
  double x_base = 2;  // grid lines are at its powers; those of y at powers of ten
  std::vector<ChartLine> lines;
};

// As SVG.
std::string draw(const Chart& chart);

}  // namespace pith_drawing
