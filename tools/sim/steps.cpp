#include "steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compress/scheme.hpp"
#include "outcome.hpp"
#include "tools/simulated/compressed.hpp"

namespace pith_sim {

using namespace pith;
using pith_explain::Candidate;
using pith_explain::Question;

namespace {

constexpr double most_memory = 0x1p32;

// `spec` without the key, and with "key=value" at its end.
std::string with_key(const std::string& spec, std::string_view key, std::string_view value) {
  const std::size_t colon = spec.find(':');
  std::string text = spec.substr(0, colon);
  char separator = ':';
  const auto add = [&](std::string_view part) {
    text += fmt::format("{}{}", std::exchange(separator, ','), part);
  };
  for (std::size_t at = colon; at != std::string::npos;) {
    const std::size_t next = spec.find(',', at + 1);
    const std::string part = spec.substr(at + 1, next - at - 1);
    if (!part.starts_with(fmt::format("{}=", key))) add(part);
    at = next;
  }
  add(fmt::format("{}={}", key, value));
  return text;
}

// Whether the spec itself says which form it takes. `key`: "exchange".
bool fixes(const std::string& spec, std::string_view key) {
  return spec.find(fmt::format(":{}=", key)) != std::string::npos ||
         spec.find(fmt::format(",{}=", key)) != std::string::npos;
}

// The spec that takes the form of this name, "topk:exchange=split"; empty: it is fixed to another.
std::string spec_of_form(const std::string& spec, const Candidate& form) {
  const std::size_t colon = form.name.find(':');
  if (colon == std::string::npos) return spec;
  const std::size_t equals = form.name.find('=');
  const std::string key = form.name.substr(colon + 1, equals - colon - 1);
  if (!fixes(spec, key)) return with_key(spec, key, form.name.substr(equals + 1));
  return form.closed.starts_with("needs ") ? "" : spec;
}

// Specs with each of the densities, where they elect.
std::vector<std::string> specs_of(const StepQuestion& question) {
  std::vector<std::string> all;
  for (const std::string& spec : question.specs) {
    if (question.densities.empty() || !Spec::parse(spec)->sparse()) {
      all.push_back(spec);
      continue;
    }
    for (const double density : question.densities) {
      all.push_back(with_key(spec, "density", fmt::format("{}", density)));
    }
  }
  return all;
}

// Never compressed by itself: an elected few of what bypass=auto would send dense.
pith_simulated::CompressedCall call_of(const Cluster& cluster, const Question& question,
                                       const Model& model, const Spec& spec) {
  return {spec, question.bytes / size_of(DType::f32), model.tuning(), hosts_of(cluster),
          cluster.seed};
}

// Before anything is run.
Error check_memory(const Cluster& cluster, const Spec& spec, std::size_t bytes) {
  pith_simulated::CompressedCall call;
  call.spec = spec;
  call.count = bytes / size_of(DType::f32);
  const double needed = pith_simulated::memory_of(call, cluster.ranks());
  if (needed <= most_memory) return {};
  return {
      Code::invalid_argument,
      fmt::format("{} ranks with {} elements and {} would take about {:.1f} GiB here, expected "
                  "at most {:.0f}: fewer --bytes or --ranks",
                  cluster.ranks(), call.count, spec.text(), needed / 0x1p30, most_memory / 0x1p30)};
}

void sort_by_time(std::vector<StepRun>& runs) {
  std::ranges::stable_sort(runs, {}, &StepRun::exchange_s);
}

Expected<std::vector<StepRun>> dense_runs(const Cluster& cluster, const Question& question) {
  const Expected<Outcome> outcome = simulate(cluster, question, {});
  if (!outcome) return outcome.error();
  std::vector<StepRun> runs;
  for (const Run& one : outcome->runs) {
    if (!one.closed.empty()) continue;
    StepRun run{.name = one.name, .exchange_s = one.simulated_s, .predicted_s = one.predicted_s};
    run.taken = &one == &outcome->takes();
    runs.push_back(std::move(run));
  }
  return runs;
}

Expected<std::vector<StepRun>> runs_of(const Cluster& cluster, Question question,
                                       const std::string& spec) {
  question.compress = *Spec::parse(spec);
  const auto model = pith_explain::model_of(question);
  if (!model) return model.error();
  const pith_explain::Answer answer = pith_explain::answer(question, **model);
  std::vector<StepRun> runs;
  for (const Candidate& form : answer.candidates) {
    if (!form.compressed) continue;
    const std::string text = spec_of_form(spec, form);
    if (text.empty()) continue;
    StepRun its{.name = form.name,
                .compressed = true,
                .gossips = question.compress->scheme->averages_parameters,
                .predicted_s = form.seconds(),
                .taken = &form == &answer.takes()};
    if (question.compress->sparse()) its.density = question.compress->density;
    const auto seconds = pith_simulated::seconds_of(
        config_of(cluster), call_of(cluster, question, **model, *Spec::parse(text)));
    if (!seconds) return seconds.error();
    its.exchange_s = *seconds;
    runs.push_back(std::move(its));
  }
  sort_by_time(runs);
  return runs;
}

}  // namespace

const StepRun& StepOutcome::best() const {
  return *std::ranges::min_element(
      runs, {}, [](const StepRun& run) { return std::pair(run.gossips, run.exchange_s); });
}

Error check(const StepQuestion& question) {
  for (const std::string& text : question.specs) {
    const Expected<Spec> spec = Spec::parse(text);
    if (!spec) return spec.error();
    if (spec->scheme->exchange == "dense") {
      return {Code::invalid_argument,
              fmt::format("--compress is {}, which sums all elements as dense calls do; expected "
                          "another scheme",
                          text)};
    }
    if (spec->chooses_scheme()) {
      return {Code::invalid_argument,
              fmt::format("--compress is {}, expected the schemes that it may choose, one by one",
                          text)};
    }
    if (spec->adapts() && question.densities.empty()) {
      return {Code::invalid_argument,
              fmt::format("--compress is {}, expected a number for density, or --densities", text)};
    }
  }
  for (const double density : question.densities) {
    if (density > 0 && density <= 1) continue;
    return {Code::invalid_argument,
            fmt::format("--densities has {}, expected numbers above 0 and up to 1", density)};
  }
  for (const std::string& text : specs_of(question)) {
    const Expected<Spec> spec = Spec::parse(text);
    if (!spec) return spec.error();
  }
  return {};
}

Expected<StepOutcome> simulate_steps(const Cluster& cluster, const StepQuestion& question,
                                     std::size_t bytes) {
  const Question dense = question_of(cluster, Collective::allreduce, bytes);
  if (bytes < size_of(DType::f32)) {
    return Error(Code::invalid_argument,
                 fmt::format("--bytes is {}, expected an element at least: 4", bytes));
  }
  const std::vector<std::string> specs = specs_of(question);
  for (const std::string& spec : specs) {
    if (Error error = check_memory(cluster, *Spec::parse(spec), bytes)) return error;
  }
  StepOutcome outcome;
  outcome.bytes = bytes;
  Expected<std::vector<StepRun>> runs = dense_runs(cluster, dense);
  if (!runs) return runs.error();
  outcome.runs = std::move(*runs);
  for (const std::string& spec : specs) {
    runs = runs_of(cluster, dense, spec);
    if (!runs) return runs.error();
    std::ranges::move(*runs, std::back_inserter(outcome.runs));
  }
  return outcome;
}

}  // namespace pith_sim
