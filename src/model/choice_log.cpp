#include "model/choice_log.hpp"

#include <fmt/format.h>

#include <chrono>

#include "collectives/registry.hpp"
#include "core/log.hpp"
#include "model/replaced_file.hpp"

namespace pith {

namespace {

constexpr std::uint64_t rest_ns = 1'000'000'000;

std::int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::uint64_t calls_of(const Tuner* tuner) {
  std::uint64_t calls = 0;
  if (tuner) {
    for (const TunedCell& cell : tuner->cells()) calls += cell.timed_calls;
  }
  return calls;
}

// Not by nlohmann-json, a dependency of tools and measurements only. Names are those of algorithms
// and collectives, which hold nothing that JSON would escape.
std::string plan_text(Choices::Plan plan) {
  return fmt::format(R"("algorithm": "{}", "variant": "{}")", Choices::algorithm_of(plan).name,
                     name_of(Choices::variant_of(plan)));
}

// One way of making a cell's calls: what it should cost, and what it has.
std::string candidate_text(const Model& model, const LinkCost& link, const TunedCell& cell,
                           Choices::Plan plan) {
  const Algorithm& algorithm = Choices::algorithm_of(plan);
  const std::size_t bytes = cell.size.largest();
  std::string text = fmt::format("      {{{}", plan_text(plan));
  if (!serves(algorithm, model.shape(bytes))) return text + R"(, "serves": false})";
  text += fmt::format(R"(, "predicted_s": {:.6g})",
                      model.cost(algorithm, bytes, Choices::variant_of(plan), &link));
  const auto tried = std::ranges::find(cell.tried, plan, &TunedCell::Tried::plan);
  if (tried != cell.tried.end()) {
    text += fmt::format(R"(, "samples": {}, "median_s": {:.6g}, "doubt": {:.3g})", tried->samples,
                        tried->median_s, tried->doubt);
  }
  return text + "}";
}

// Every algorithm as usual, and the variants that were tried or are to be.
std::vector<Choices::Plan> candidates_of(const TunedCell& cell, const Choices::Cell& wanted) {
  std::vector<Choices::Plan> plans;
  const auto add = [&](Choices::Plan plan) {
    if (std::ranges::find(plans, plan) == plans.end()) plans.push_back(plan);
  };
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == cell.collective) add(Choices::plan_of(algorithm));
  }
  add(cell.chosen);
  for (const TunedCell::Tried& tried : cell.tried) add(tried.plan);
  for (std::size_t i = 0; i < wanted.rival_count; ++i) add(wanted.rivals[i]);
  return plans;
}

std::string cell_text(const Model& model, const Tuner& tuner, const TunedCell& cell) {
  const Choices::Cell& wanted = tuner.wanted().at(cell.collective, cell.size);
  std::vector<std::string> candidates;
  for (const Choices::Plan plan : candidates_of(cell, wanted)) {
    candidates.push_back(candidate_text(model, tuner.link(), cell, plan));
  }
  std::vector<std::string> rivals;
  for (std::size_t i = 0; i < wanted.rival_count; ++i) {
    rivals.push_back(fmt::format("{{{}}}", plan_text(wanted.rivals[i])));
  }
  return fmt::format(
      "    {{\"collective\": \"{}\", \"bytes\": {}, \"timed_calls\": {}, \"forced\": {},\n"
      "     \"chosen\": {{{}}}, \"rivals\": [{}],\n     \"candidates\": [\n{}]}}",
      name_of(cell.collective), cell.size.largest(), cell.timed_calls,
      model.is_forced(cell.collective), plan_text(cell.chosen), fmt::join(rivals, ", "),
      fmt::join(candidates, ",\n"));
}

}  // namespace

ChoiceLog::ChoiceLog(std::string path, const Model& model, int hosts)
    : path_(std::move(path)), model_(model), hosts_(hosts) {}

void ChoiceLog::look(const Tuner* tuner, std::uint64_t now_ns) {
  if (now_ns - looked_ns_ < rest_ns) return;
  const std::uint64_t calls = calls_of(tuner);
  const bool is_first = std::exchange(looked_ns_, now_ns) == 0;
  if (std::exchange(calls_, calls) == calls && !is_first) return;
  write(choices_text(model_, hosts_, tuner, false));
}

void ChoiceLog::end(const Tuner* tuner) { write(choices_text(model_, hosts_, tuner, true)); }

std::string choices_text(const Model& model, int hosts, const Tuner* tuner, bool ended) {
  const Shape shape = model.shape(0);
  const LinkCost& link = tuner ? tuner->link() : model.link();
  std::vector<std::string> cells;
  if (tuner) {
    for (const TunedCell& cell : tuner->cells()) cells.push_back(cell_text(model, *tuner, cell));
  }
  return fmt::format(
      "{{\n  \"format\": \"pith choices 1\", \"ended\": {}, \"written_unix_s\": {},\n"
      "  \"ranks\": {}, \"hosts\": {}, \"learns\": {}, \"views\": {}, \"oversubscribed\": {}, "
      "\"devices\": {},\n"
      "  \"link\": {{\"alpha_s\": {}, \"beta_s_per_byte\": {}, \"gamma_s_per_byte\": {}, "
      "\"message_s\": {}}},\n"
      "  \"chunk_bytes\": {}, \"lanes\": {},\n  \"cells\": [\n{}]\n}}\n",
      ended, unix_seconds(), shape.ranks, hosts, model.learns(), shape.views, shape.oversubscribed,
      shape.devices, link.alpha, link.beta, link.gamma, link.message, shape.tuning.chunk_bytes,
      shape.tuning.lanes, fmt::join(cells, ",\n"));
}

void ChoiceLog::write(const std::string& text) {
  const Error error = replace_file(path_, text);
  if (!error || std::exchange(failed_, true)) return;
  log(LogLevel::warn, fmt::format("PITH_EXPLAIN_LOG: {}", error.message()));
}

}  // namespace pith
