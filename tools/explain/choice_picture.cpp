#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "choice_record.hpp"
#include "report.hpp"
#include "tools/drawing/chart.hpp"

namespace pith_explain {

using namespace pith;
using pith_drawing::ChartLine;

namespace {

using Lines = std::map<std::string, ChartLine>;

ChartLine& line_of(Lines& lines, const std::string& name) {
  ChartLine& line = lines[name];
  line.name = name;
  return line;
}

// What was recorded of a size.
void add_cell(const RecordedCell& cell, Lines& lines) {
  const auto x = static_cast<double>(cell.bytes);
  for (const RecordedWay& way : cell.ways) {
    if (!way.serves || !(way.predicted_s > 0)) continue;
    ChartLine& line = line_of(lines, way.name);
    line.points.push_back({x, way.predicted_s});
    if (way.times) line.marks.push_back({x, way.times->median_s});
  }
}

// Between and around these sizes the same cost functions say what the job's model would.
Error add_prediction(Question question, const std::vector<std::size_t>& recorded, Lines& lines) {
  constexpr std::size_t around = 8;
  const Expected<std::unique_ptr<Model>> model = model_of(question);
  if (!model) return model.error();
  const auto [least, longest] = std::ranges::minmax(recorded);
  const std::size_t most = std::min(longest, std::size_t{1} << 48);  // a record may hold anything
  for (std::size_t bytes = std::max<std::size_t>(least / around, 1); bytes <= most * around;
       bytes *= 2) {
    if (std::ranges::find(recorded, bytes) != recorded.end()) continue;
    question.bytes = bytes;
    for (const Candidate& one : answer(question, **model).candidates) {
      const auto line = lines.find(one.name);
      if (line == lines.end() || !(one.seconds() > 0)) continue;
      line->second.points.push_back({static_cast<double>(bytes), one.seconds()});
    }
  }
  return {};
}

}  // namespace

std::string most_timed(const ChoiceRecord& record) {
  std::map<std::string, std::uint64_t> calls;
  for (const RecordedCell& cell : record.cells) calls[cell.collective] += cell.timed_calls;
  const auto most = std::ranges::max_element(
      calls, [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == calls.end() ? "" : most->first;
}

Expected<std::string> svg(const ChoiceRecord& record, const std::string& collective) {
  Lines lines;
  std::vector<std::size_t> sizes;
  for (const RecordedCell& cell : record.cells) {
    if (cell.collective != collective) continue;
    add_cell(cell, lines);
    sizes.push_back(cell.bytes);
  }
  if (sizes.empty()) {
    return Error(Code::invalid_argument,
                 fmt::format("--collective is {}, expected one of which calls were timed",
                             collective.empty() ? "not given" : collective));
  }
  Question question = question_of(record);
  const Expected<Collective> which = parse_collective("--collective", collective);
  if (!which) return which.error();
  question.collective = *which;
  if (Error error = add_prediction(question, sizes, lines)) return error;
  pith_drawing::Chart chart;
  chart.title = heading(question);
  chart.subtitle = "lines: predicted by bytes on the job's link; dots: measured";
  chart.x_name = name_of_size;
  chart.y_name = name_of_time;
  for (auto& [name, line] : lines) {
    std::ranges::sort(line.points, {}, &pith_drawing::Point::x);
    chart.lines.push_back(std::move(line));
  }
  return draw(chart);
}

}  // namespace pith_explain
