#include <nlohmann/json.hpp>

#include "choice_record.hpp"

namespace pith_explain {

namespace {

nlohmann::json of_way(const RecordedWay& way) {
  nlohmann::json one = {{"name", way.name}, {"serves", way.serves}, {"rival", way.is_rival}};
  if (way.serves) one["predicted_s"] = way.predicted_s;
  if (way.times) {
    one.update({{"measured_s", way.times->median_s},
                {"doubt", way.times->doubt},
                {"samples", way.times->samples}});
  }
  return one;
}

nlohmann::json of_cell(const RecordedCell& cell) {
  nlohmann::json one = {{"collective", cell.collective},
                        {"bytes", cell.bytes},
                        {"timed_calls", cell.timed_calls},
                        {"forced", cell.forced},
                        {"taken", cell.takes().name}};
  if (const RecordedWay* fastest = cell.fastest()) one["fastest"] = fastest->name;
  if (const std::optional<double> regret = cell.regret()) one["regret"] = *regret;
  one["ways"] = nlohmann::json::array();
  for (const RecordedWay& way : cell.ways) one["ways"].push_back(of_way(way));
  return one;
}

}  // namespace

std::string json_of(const ChoiceRecord& record) {
  nlohmann::json all = {{"ended", record.ended},
                        {"written_unix_s", record.written_unix_s},
                        {"ranks", record.ranks},
                        {"hosts", record.hosts},
                        {"learns", record.learns},
                        {"views", record.views},
                        {"oversubscribed", record.oversubscribed},
                        {"devices", record.devices},
                        {"alpha_s", record.link.alpha},
                        {"beta_s_per_byte", record.link.beta},
                        {"gamma_s_per_byte", record.link.gamma}};
  all["cells"] = nlohmann::json::array();
  for (const RecordedCell& cell : record.cells) all["cells"].push_back(of_cell(cell));
  return all.dump(2) + "\n";
}

}  // namespace pith_explain
