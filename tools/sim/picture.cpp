#include <map>

#include "outcome.hpp"
#include "tools/drawing/chart.hpp"
#include "tools/explain/report.hpp"

namespace pith_sim {

std::string svg(const pith_explain::Question& question, const std::vector<Outcome>& outcomes) {
  pith_drawing::Chart chart;
  chart.title = pith_explain::heading(question);
  chart.subtitle = "simulated time by bytes; dots: what the library takes";
  chart.x_name = pith_explain::name_of_size;
  chart.y_name = pith_explain::name_of_time;
  std::map<std::string, pith_drawing::ChartLine> lines;
  for (const Outcome& outcome : outcomes) {
    for (const Run& run : outcome.runs) {
      if (!run.closed.empty() || !(run.simulated_s > 0)) continue;
      const pith_drawing::Point point{static_cast<double>(outcome.bytes), run.simulated_s};
      pith_drawing::ChartLine& line = lines[run.name];
      line.name = run.name;
      line.points.push_back(point);
      if (&run == &outcome.takes()) line.marks.push_back(point);
    }
  }
  for (auto& [name, line] : lines) chart.lines.push_back(std::move(line));
  return draw(chart);
}

}  // namespace pith_sim
