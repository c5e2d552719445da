#include "choice_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pith_explain {

using namespace pith;
using nlohmann::json;

namespace {

constexpr std::string_view format = "pith choices 1";

std::string name_of_plan(const json& plan) {
  const auto algorithm = plan.at("algorithm").get<std::string>();
  const auto variant = plan.at("variant").get<std::string>();
  return variant.empty() ? algorithm : fmt::format("{} {}", algorithm, variant);
}

// A mistake in the file is thrown as json's are: what() says what is wrong.
void must(bool holds, const char* what) {
  if (!holds) throw json::other_error::create(501, what, nullptr);
}

double positive(const json& from, const char* key) {
  const auto value = from.at(key).get<double>();
  must(value > 0, "a time is not above 0");
  return value;
}

const Algorithm* find(std::string_view collective, std::string_view name) {
  const auto is_it = [&](const Algorithm& one) {
    return name_of(one.collective) == collective && one.name == name;
  };
  const auto found = std::ranges::find_if(algorithms(), is_it);
  return found == algorithms().end() ? nullptr : &*found;
}

RecordedWay read_way(const json& from, std::string_view collective) {
  RecordedWay way;
  way.name = name_of_plan(from);
  way.algorithm = find(collective, from.at("algorithm").get<std::string>());
  way.serves = from.value("serves", true);
  if (!way.serves) return way;
  way.predicted_s = from.at("predicted_s").get<double>();
  if (!from.contains("median_s")) return way;
  way.times = {from.at("samples").get<std::size_t>(), positive(from, "median_s"),
               from.at("doubt").get<double>()};
  return way;
}

std::size_t place_of(const std::vector<RecordedWay>& ways, const json& plan) {
  const auto found = std::ranges::find(ways, name_of_plan(plan), &RecordedWay::name);
  must(found != ways.end(), "what is chosen or tried is no candidate");
  return static_cast<std::size_t>(found - ways.begin());
}

// Measured ones by time, then those that serve by prediction, then the others.
void sort(RecordedCell& cell) {
  const std::string taken = cell.takes().name;
  std::ranges::stable_sort(cell.ways, [](const RecordedWay& a, const RecordedWay& b) {
    if (a.times.has_value() != b.times.has_value()) return a.times.has_value();
    if (a.times) return a.times->median_s < b.times->median_s;
    if (a.serves != b.serves) return a.serves;
    return a.predicted_s < b.predicted_s;
  });
  const auto found = std::ranges::find(cell.ways, taken, &RecordedWay::name);
  cell.chosen = static_cast<std::size_t>(found - cell.ways.begin());
}

RecordedCell read_cell(const json& from) {
  RecordedCell cell;
  cell.collective = from.at("collective").get<std::string>();
  cell.bytes = from.at("bytes").get<std::size_t>();
  cell.timed_calls = from.at("timed_calls").get<std::uint64_t>();
  cell.forced = from.at("forced").get<bool>();
  for (const json& one : from.at("candidates")) {
    cell.ways.push_back(read_way(one, cell.collective));
  }
  for (const json& one : from.at("rivals")) cell.ways[place_of(cell.ways, one)].is_rival = true;
  cell.chosen = place_of(cell.ways, from.at("chosen"));
  sort(cell);
  return cell;
}

ChoiceRecord read_record(const json& from) {
  ChoiceRecord record;
  record.ended = from.at("ended").get<bool>();
  record.written_unix_s = from.at("written_unix_s").get<std::int64_t>();
  record.ranks = from.at("ranks").get<int>();
  record.hosts = from.at("hosts").get<int>();
  record.learns = from.at("learns").get<bool>();
  record.views = from.at("views").get<bool>();
  record.oversubscribed = from.at("oversubscribed").get<bool>();
  record.devices = from.at("devices").get<bool>();
  const json& link = from.at("link");
  record.link.alpha = link.at("alpha_s").get<double>();
  record.link.beta = link.at("beta_s_per_byte").get<double>();
  record.link.gamma = link.at("gamma_s_per_byte").get<double>();
  record.link.message = link.at("message_s").get<double>();
  for (const json& one : from.at("cells")) record.cells.push_back(read_cell(one));
  return record;
}

}  // namespace

Question question_of(const ChoiceRecord& record) {
  Question question;
  question.ranks = record.ranks;
  question.hosts = record.hosts;
  question.link = record.link;
  question.views = record.views;
  question.oversubscribed = record.oversubscribed;
  question.devices = record.devices;
  return question;
}

const RecordedWay* RecordedCell::fastest() const {
  return !ways.empty() && ways.front().times ? &ways.front() : nullptr;
}

std::optional<double> RecordedCell::regret() const {
  if (!takes().times) return {};
  return takes().times->median_s / fastest()->times->median_s - 1;
}

Expected<ChoiceRecord> read_choices(const std::string& text, const std::string& name) {
  const json object = json::parse(text, nullptr, false);
  const auto wrong = [&](const std::string& what) {
    return Error(Code::invalid_argument,
                 fmt::format("{} is no record of choices: {}; expected a file that "
                             "PITH_EXPLAIN_LOG named",
                             name, what));
  };
  if (!object.is_object()) return wrong("not a JSON object");
  if (object.value("format", json()) != format) {
    return wrong(fmt::format("its \"format\" is not \"{}\"", format));
  }
  try {
    return read_record(object);
  } catch (const json::exception& error) {
    return wrong(error.what());
  }
}

}  // namespace pith_explain
