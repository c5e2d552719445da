#include "comm/algorithm_choice.hpp"

#include <algorithm>

namespace pith {

Error AlgorithmChoice::read(const std::string& text) {
  const Expected<ForcedAlgorithms> forced = read_algorithm_rule(text, links_.size());
  if (!forced) return forced.error();
  forced_ = *forced;
  links_.set_choice(forced_[static_cast<std::size_t>(Collective::allreduce)]);
  return {};
}

Shape AlgorithmChoice::shape_of(const CollectiveArgs& args) const {
  const std::size_t bytes = args.count * size_of(args.type);
  const Choice& choice = links_.context().choice;
  return {links_.size(),  bytes,        links_.tuning(), choice.views,
          choice.crowded, choice.apart, choice.devices};
}

const Algorithm* AlgorithmChoice::of(std::string_view collective, std::size_t count,
                                     DType type) const {
  const auto of_it = [&](const Algorithm& one) { return name_of(one.collective) == collective; };
  const auto found = std::ranges::find_if(algorithms(), of_it);
  if (found == algorithms().end()) return nullptr;
  return &of({.collective = found->collective, .count = count, .type = type});
}

}  // namespace pith
