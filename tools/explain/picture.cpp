#include <algorithm>
#include <map>

#include "report.hpp"
#include "tools/drawing/chart.hpp"

namespace pith_explain {

std::string svg(const Question& question, const std::vector<SizedAnswer>& answers) {
  pith_drawing::Chart chart;
  chart.title = heading(question);
  chart.subtitle = "predicted cost by bytes; dots: what the library takes";
  if (question.compress) chart.subtitle = question.compress->text() + ": " + chart.subtitle;
  chart.x_name = name_of_size;
  chart.y_name = name_of_time;
  std::map<std::string, pith_drawing::ChartLine> lines;
  for (const SizedAnswer& at : answers) {
    for (const Candidate& candidate : at.answer.candidates) {
      if (!(candidate.seconds() > 0)) continue;
      const pith_drawing::Point point{static_cast<double>(at.bytes), candidate.seconds()};
      pith_drawing::ChartLine& line = lines[candidate.name];
      line.name = candidate.name;
      line.points.push_back(point);
      if (&candidate == &at.answer.takes()) line.marks.push_back(point);
    }
  }
  for (auto& [name, line] : lines) chart.lines.push_back(std::move(line));
  return draw(chart);
}

}  // namespace pith_explain
