#include "transport/verbs/verbs_completions.hpp"

#include <algorithm>
#include <array>

namespace pith {
namespace {

constexpr std::size_t completions_at_once = 32;

}  // namespace

void VerbsCompletions::add(std::uint32_t rank, VerbsLanes& lanes) {
  lanes_.resize(std::max<std::size_t>(lanes_.size(), rank + 1));
  lanes_[rank] = &lanes;
}

Expected<bool> VerbsCompletions::gather() {
  std::array<ibv_wc, completions_at_once> some;
  const std::size_t before = taken_.size();
  taken_.reserve(before + rails_.size() * some.size());
  for (const auto& rail : rails_) {
    const Expected<std::size_t> count = rail->poll(some);
    if (!count) return count.error();
    for (std::size_t i = 0; i < *count; ++i) {
      const std::uint32_t rank = VerbsTag::unpack(some[i].wr_id).peer;
      if (is_data(some[i]) && rank < lanes_.size() && lanes_[rank]) lanes_[rank]->count(some[i]);
      taken_.push_back(some[i]);
    }
  }
  return taken_.size() != before;
}

}  // namespace pith
