#include "frame/elections.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "frame/library_topk.hpp"

namespace pith_perf {
namespace {

enum : std::uint8_t { stays, leaves, leaves_by_threshold };

// Replaces each element's mark by the maximum over all ranks.
void join_marks(const Team& team, std::vector<std::vector<std::uint8_t>>& marks) {
  team.each("pithAllReduce", [&](int local) {
    std::vector<std::uint8_t>& own = marks[static_cast<std::size_t>(local)];
    return pithAllReduce(own.data(), own.data(), own.size(), pithUint8, pithMax, team.comm(local),
                         nullptr);
  });
}

}  // namespace

Election election_of_leader(const pith::Spec& spec, const Team& team, std::size_t step,
                            const Vectors& sums, const Compressors& compressors) {
  const std::size_t count = sums[0].size();
  const std::size_t k = pith::elected_of(spec.density, count);
  std::vector<std::vector<std::uint32_t>> indices;
  std::vector<double> norms;
  for (std::vector<float> sum : sums) {
    Pairs pairs = take_topk(sum, k, spec.values);
    double squares = 0;
    for (const float value : pairs.values) squares += double(value) * double(value);
    norms.push_back(squares);
    indices.push_back(std::move(pairs.indices));
  }
  const std::vector<std::uint32_t> all_indices = team.gather_vectors(indices);
  const std::vector<double> all_norms = team.gather(std::span<const double>(norms));
  Election election{std::vector<std::uint8_t>(count), 0};
  const auto leader = static_cast<std::size_t>(compressors.stats(0).leader);
  for (int local = 0; local < team.size(); ++local) {
    const auto told = static_cast<std::size_t>(compressors.stats(local).leader);
    election.wrong += told != leader || !spec.scheme->checks.may_lead(spec, step, all_norms, told);
  }
  if (leader >= all_norms.size()) return election;
  for (std::size_t i = 0; i < k; ++i) election.elected[all_indices[leader * k + i]] = 1;
  return election;
}

Election election_of_owners(const pith::Spec& spec, const Team& team, const Vectors& sums,
                            const Vectors& residuals, const Compressors& compressors) {
  const std::size_t count = sums[0].size();
  std::vector<std::vector<std::uint8_t>> marks;
  std::vector<std::uint64_t> own_elections;
  for (std::size_t local = 0; local < sums.size(); ++local) {
    const pithCompressorStats_t stats = compressors.stats(static_cast<int>(local));
    own_elections.push_back(stats.selected_local);
    std::vector<std::uint8_t>& own = marks.emplace_back(count, stays);
    for (std::size_t i = 0; i < count; ++i) {
      if (residuals[local][i] == sums[local][i]) continue;
      const bool elects =
          stats.selected_local > 0 && std::abs(double(sums[local][i])) >= stats.threshold;
      own[i] = elects ? leaves_by_threshold : leaves;
    }
  }
  join_marks(team, marks);
  std::uint64_t elections = 0;
  for (const std::uint64_t own : team.gather(std::span<const std::uint64_t>(own_elections))) {
    elections += own;
  }
  Election election{std::move(marks[0]), 0};
  const auto with_mark = [&](std::uint8_t mark) {
    return static_cast<std::size_t>(
        std::count(election.elected.begin(), election.elected.end(), mark));
  };
  const std::size_t without_elector = with_mark(leaves);
  const std::size_t left = without_elector + with_mark(leaves_by_threshold);
  const pith::Unelected unelected = spec.scheme->checks.unelected
                                        ? spec.scheme->checks.unelected(spec, team.ranks())
                                        : pith::Unelected();
  const std::uint64_t moved = compressors.stats(0).selected_union;
  if (unelected.whole_parts ? elections > moved : elections != moved) {
    ++election.wrong;
    return election;
  }
  election.wrong += without_elector > unelected.dummies + (moved - elections);
  // An element that is sent but zero on all ranks leaves no trace.
  const bool may_be_zero = unelected.whole_parts || unelected.dummies > 0;
  election.wrong += may_be_zero ? left > moved : left != moved;
  return election;
}

}  // namespace pith_perf
