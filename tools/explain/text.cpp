#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/scheme.hpp"
#include "report.hpp"

namespace pith_explain {

// With digits enough to tell it from one.
std::string times_as_dear(double ratio) {
  if (ratio < 1.001) return "as dear as the cheapest";
  return ratio < 10 ? fmt::format("{:.3g} times as dear as the cheapest", ratio)
                    : fmt::format("{:.0f} times as dear as the cheapest", ratio);
}

namespace {

// Its calls bring parameters nearer to each other, and are compared with no sum.
bool gossips(const Question& question) {
  return question.compress && question.compress->scheme->averages_parameters;
}

std::string remark(const Question& question, const Answer& answer, const Candidate& candidate) {
  if (gossips(question)) return &candidate == &answer.takes() ? "taken" : candidate.closed;
  const bool cheapest = &candidate == &answer.cheapest();
  std::string dear =
      cheapest ? "the cheapest" : times_as_dear(candidate.seconds() / answer.cheapest().seconds());
  if (candidate.timeouts_s > 0) {
    dear += fmt::format(", as many senders lose packets: {} in the mean until they send them again",
                        name_of_time(candidate.timeouts_s));
  }
  if (&candidate == &answer.takes()) {
    return fmt::format("taken{}, {}", answer.forced ? " as PITH_ALGO says" : "", dear);
  }
  if (!candidate.open()) return candidate.closed;
  return cheapest ? "the cheapest, but not taken" : dear;
}

std::size_t longest_name(const Answer& answer) {
  std::size_t longest = 0;
  for (const Candidate& one : answer.candidates) longest = std::max(longest, one.name.size());
  return longest;
}

std::string row(const Question& question, const Answer& answer, const Candidate& candidate) {
  const char mark = &candidate == &answer.takes() ? '*' : ' ';
  std::string line = fmt::format("{} {:<{}}", mark, candidate.name, longest_name(answer));
  if (question.compress) {
    line += fmt::format(" {:>10} {:>10}", name_of_time(candidate.exchange_s),
                        name_of_time(candidate.work_s));
  }
  return line + fmt::format(" {:>10}  {}\n", name_of_time(candidate.seconds()),
                            remark(question, answer, candidate));
}

// Says plainly whether the rule found the cheapest.
std::string verdict(const Question& question, const Answer& answer) {
  const std::string& taken = answer.takes().name;
  if (gossips(question)) {
    return fmt::format(
        "The library takes {}: a step of gossip with neighbours, which is no sum; the others "
        "are.\n",
        taken);
  }
  if (answer.regret() < 1e-6) {
    return fmt::format("The library takes {}, the cheapest by this model.\n", taken);
  }
  return fmt::format(
      "The library takes {}, but by this model {} is the cheapest: {} instead of {}.\n"
      "Regret by this model: {:.1f} %.\n",
      taken, answer.cheapest().name, name_of_time(answer.cheapest().seconds()),
      name_of_time(answer.takes().seconds()), 100 * answer.regret());
}

std::string of_compressed(const Question& question, const Answer& answer) {
  std::string line = fmt::format("{}: {} elements", question.compress->text(), answer.elements);
  if (answer.elected > 0) line += fmt::format(", of which a rank elects {}", answer.elected);
  if (answer.elected > 0 && question.compress->adapts()) line += " at first";
  if (answer.sent.coded > 0) {
    line += fmt::format("; a rank sends {:.4g} bytes instead of {:.4g}", answer.sent.coded,
                        answer.sent.plain);
  }
  return line + fmt::format("\n{}\n", answer.bypass);
}

}  // namespace

std::string name_of_size(double bytes) {
  for (const auto& [unit, letter] : {std::pair{0x1p30, 'G'}, {0x1p20, 'M'}, {0x1p10, 'K'}}) {
    if (bytes >= unit && std::fmod(bytes, unit) == 0)
      return fmt::format("{:g}{}", bytes / unit, letter);
  }
  return fmt::format("{:g}", bytes);
}

std::string name_of_time(double seconds) {
  for (const auto& [unit, name] : {std::pair{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}}) {
    if (seconds >= unit) return fmt::format("{:#.4g} {}", seconds / unit, name);
  }
  return fmt::format("{:#.4g} ns", seconds * 1e9);
}

std::string heading(const Question& question) {
  return fmt::format("{} of {}", name_of(question.collective), place_and_link(question));
}

std::string place_and_link(const Question& question) {
  const pith::LinkCost& link = question.link;
  std::string line =
      fmt::format("{} ranks on {}; a message {}, a byte {}, reducing one {}", question.ranks,
                  question.hosts == 1 ? "1 host" : fmt::format("{} hosts", question.hosts),
                  name_of_time(link.alpha), name_of_time(link.beta), name_of_time(link.gamma));
  if (question.views) line += "; views (but costs are those of messages)";
  if (question.oversubscribed) line += "; more ranks than cores";
  if (question.devices) line += "; devices";
  return line;
}

std::string text(const Question& question, const Answer& answer) {
  std::string out = heading(question) + "\n";
  if (question.compress) out += of_compressed(question, answer);
  const std::string size = name_of_size(static_cast<double>(question.bytes)) + " bytes";
  out += fmt::format("\n  {:<{}}", size, longest_name(answer));
  if (question.compress) out += fmt::format(" {:>10} {:>10}", "exchange", "work");
  out += fmt::format(" {:>10}\n", "cost");
  for (const Candidate& candidate : answer.candidates) out += row(question, answer, candidate);
  return out + "\n" + verdict(question, answer);
}

std::string table(const std::vector<SizedAnswer>& answers) {
  std::string out = fmt::format("{:>10}  {:<24} {:>10}  {:<24} {:>10} {:>8}\n", "bytes", "taken",
                                "cost", "cheapest", "cost", "regret");
  double logs = 0;
  double worst = 0;
  for (const SizedAnswer& at : answers) {
    const Candidate& takes = at.answer.takes();
    const Candidate& cheapest = at.answer.cheapest();
    const double regret = at.answer.regret();
    out += fmt::format("{:>10}  {:<24} {:>10}  {:<24} {:>10} {:>6.1f} %\n",
                       name_of_size(static_cast<double>(at.bytes)), takes.name,
                       name_of_time(takes.seconds()), cheapest.name,
                       name_of_time(cheapest.seconds()), 100 * regret);
    logs += std::log1p(regret);
    worst = std::max(worst, regret);
  }
  const double mean = std::expm1(logs / static_cast<double>(answers.size()));
  return out +
         fmt::format("Regret by this model: {:.1f} % in the geometric mean, {:.1f} % at worst.\n",
                     100 * mean, 100 * worst);
}

}  // namespace pith_explain
