#include <nlohmann/json.hpp>

#include "report.hpp"

namespace pith_explain {

namespace {

nlohmann::json of_candidate(const Candidate& candidate) {
  nlohmann::json one = {{"name", candidate.name},
                        {"compressed", candidate.compressed},
                        {"exchange_s", candidate.exchange_s},
                        {"work_s", candidate.work_s},
                        {"cost_s", candidate.seconds()}};
  if (!candidate.open()) one["closed"] = candidate.closed;
  return one;
}

nlohmann::json of_answer(const SizedAnswer& at) {
  nlohmann::json candidates = nlohmann::json::array();
  for (const Candidate& candidate : at.answer.candidates) {
    candidates.push_back(of_candidate(candidate));
  }
  nlohmann::json one = {{"bytes", at.bytes},
                        {"taken", at.answer.takes().name},
                        {"forced", at.answer.forced},
                        {"cheapest", at.answer.cheapest().name},
                        {"regret", at.answer.regret()},
                        {"candidates", std::move(candidates)}};
  if (!at.answer.bypass.empty()) {
    one.update({{"bypass", at.answer.bypass},
                {"elements", at.answer.elements},
                {"elected", at.answer.elected}});
  }
  if (at.answer.sent.coded > 0) {
    one.update({{"sent_bytes", at.answer.sent.coded}, {"plain_bytes", at.answer.sent.plain}});
  }
  return one;
}

}  // namespace

std::string json(const Question& question, const std::vector<SizedAnswer>& answers) {
  nlohmann::json all = {{"collective", std::string(name_of(question.collective))},
                        {"ranks", question.ranks},
                        {"hosts", question.hosts},
                        {"views", question.views},
                        {"oversubscribed", question.oversubscribed},
                        {"devices", question.devices},
                        {"alpha_s", question.link.alpha},
                        {"beta_s_per_byte", question.link.beta},
                        {"gamma_s_per_byte", question.link.gamma}};
  if (question.compress) all["compress"] = question.compress->text();
  all["sizes"] = nlohmann::json::array();
  for (const SizedAnswer& at : answers) all["sizes"].push_back(of_answer(at));
  return all.dump(2) + "\n";
}

}  // namespace pith_explain
