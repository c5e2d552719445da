#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "answer.hpp"
#include "choice_record.hpp"
#include "report.hpp"

namespace pith_explain {

namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

// Why nobody knows how long it takes.
std::string why_untried(const ChoiceRecord& record, const RecordedCell& cell,
                        const RecordedWay& way) {
  if (!way.serves) {
    return way.algorithm ? why_not_serving(*way.algorithm, record.ranks) : "cannot serve here";
  }
  if (way.is_rival) return "is to be tried";
  if (cell.forced) return "not tried: PITH_ALGO names another";
  if (!record.learns) return "not tried: the communicator does not learn";
  double least = INFINITY;
  for (const RecordedWay& one : cell.ways) {
    if (one.serves) least = std::min(least, one.predicted_s);
  }
  return fmt::format("not tried: predicted {}", times_as_dear(way.predicted_s / least));
}

// How its measured time is to that of what is taken.
std::string measured(const RecordedCell& cell, const RecordedWay& way) {
  const char* const tried = way.is_rival ? ", still tried" : "";
  if (!cell.takes().times) return fmt::format("measured{}", tried);
  const RecordedTimes& taken = *cell.takes().times;
  const double gain = std::log(taken.median_s / way.times->median_s);
  const double doubt = std::hypot(taken.doubt, way.times->doubt);
  const char* const within = std::abs(gain) < 1.5 * doubt ? ", which may be chance" : "";
  const double ratio = std::exp(std::abs(gain)) - 1;
  return fmt::format("{} {} than what is taken{}{}", percent(ratio), gain > 0 ? "faster" : "slower",
                     within, tried);
}

std::string remark(const ChoiceRecord& record, const RecordedCell& cell, const RecordedWay& way) {
  if (&way != &cell.takes()) {
    return way.times ? measured(cell, way) : why_untried(record, cell, way);
  }
  const std::string taken = cell.forced ? "taken as PITH_ALGO says" : "taken";
  return &way == cell.fastest() ? taken + ", the fastest measured" : taken;
}

std::size_t longest_name(const RecordedCell& cell) {
  std::size_t longest = 13;
  for (const RecordedWay& way : cell.ways) longest = std::max(longest, way.name.size());
  return longest;
}

std::string row(const ChoiceRecord& record, const RecordedCell& cell, const RecordedWay& way) {
  std::string line =
      fmt::format("{} {:<{}} {:>10}", &way == &cell.takes() ? '*' : ' ', way.name,
                  longest_name(cell), way.serves ? name_of_time(way.predicted_s) : "-");
  if (way.times) {
    line += fmt::format(" {:>10} {:>8} {:>8}", name_of_time(way.times->median_s),
                        percent(std::expm1(way.times->doubt)), way.times->samples);
  } else {
    line += fmt::format(" {:>10} {:>8} {:>8}", "-", "", "");
  }
  return line + fmt::format("  {}\n", remark(record, cell, way));
}

std::string cell_text(const ChoiceRecord& record, const RecordedCell& cell) {
  const std::string size = name_of_size(static_cast<double>(cell.bytes));
  std::string out = fmt::format("\n{} of up to {} bytes, {} calls timed\n", cell.collective, size,
                                cell.timed_calls);
  out += fmt::format("  {:<{}} {:>10} {:>10} {:>8} {:>8}\n", "", longest_name(cell), "predicted",
                     "measured", "+-", "samples");
  for (const RecordedWay& way : cell.ways) out += row(record, cell, way);
  const std::optional<double> regret = cell.regret();
  if (!regret) return out + "What is taken has not been measured yet.\n";
  return out + fmt::format("Measured regret of {}: {}\n", cell.takes().name, percent(*regret));
}

std::string head(const ChoiceRecord& record, std::int64_t now_unix_s) {
  return fmt::format("{}\n{}; written {} s ago, {}\n", place_and_link(question_of(record)),
                     record.learns ? "learns from times" : "does not learn (PITH_LEARN)",
                     std::max<std::int64_t>(now_unix_s - record.written_unix_s, 0),
                     record.ended ? "when the communicator ended" : "while calls could run");
}

}  // namespace

std::string text(const ChoiceRecord& record, std::int64_t now_unix_s) {
  std::string out = head(record, now_unix_s);
  double logs = 0;
  double worst = 0;
  int known = 0;
  for (const RecordedCell& cell : record.cells) {
    out += cell_text(record, cell);
    const std::optional<double> regret = cell.regret();
    if (!regret) continue;
    ++known;
    logs += std::log1p(*regret);
    worst = std::max(worst, *regret);
  }
  if (known == 0)
    return out +
           "\nNo call has been measured enough yet. A job's further communicators have files of "
           "their\n"
           "own: this one's name with .at-HOST:PORT, .comm-KEY or a number.\n";
  return out + fmt::format(
                   "\nMeasured regret: {} in the geometric mean, {} at worst; rivals were "
                   "timed when they were tried, perhaps under other load.\n",
                   percent(std::expm1(logs / known)), percent(worst));
}

}  // namespace pith_explain
