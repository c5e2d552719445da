#include "frame/compressed_check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "frame/coded_check.hpp"
#include "frame/drawn_check.hpp"
#include "frame/library_topk.hpp"

namespace pith_perf {
namespace {

constexpr std::size_t chunk_elements = std::size_t{1} << 18;

// Replaces the vectors of this thread's ranks by the sum over all ranks.
void sum(const Team& team, std::vector<std::vector<double>>& mine) {
  team.each("pithAllReduce", [&](int local) {
    std::vector<double>& own = mine[static_cast<std::size_t>(local)];
    return pithAllReduce(own.data(), own.data(), own.size(), pithFloat64, pithSum, team.comm(local),
                         nullptr);
  });
}

// Of `auto` the spec of a call that elects, or of a dense one: others name themselves.
pith::Spec electing(const pith::Spec& spec) {
  if (!spec.chooses_scheme()) return spec;
  const auto may = [&](pith::Form one) { return is_elected(one) && spec.may_take(one); };
  const auto found = std::ranges::find_if(pith::all_forms, may);
  return in_form(spec, found == pith::all_forms.end() ? pith::Form::none : *found);
}

}  // namespace

CompressedCheck::CompressedCheck(const pith::Spec& spec, const Team& team, std::size_t count,
                                 pithDataType_t type, pithRedOp_t op)
    : spec_(electing(spec)),
      team_(team),
      count_(count),
      type_(type),
      parts_(op == pithAvg ? team.ranks() : 1) {
  residuals_.assign(static_cast<std::size_t>(team.size()), std::vector<float>(count));
}

Errors CompressedCheck::check(const std::vector<std::span<const float>>& gradients,
                              const std::vector<std::span<const float>>& results,
                              const Compressors& compressors) {
  if (const auto coding = coding_in_use(compressors)) {
    const Vectors sums = sums_of(gradients);
    const bool votes = coding->kind == pith::Coding::Kind::signs;
    Errors errors = compare_coded(*coding, votes, sums, results);
    if (coding->momentum == 0) {
      errors.merge(check_left(coding->keeps_rest, gradients, results, compressors));
      return errors;
    }
    for (std::size_t local = 0; local < sums.size(); ++local) {
      residuals_[local] = compressors.residual(static_cast<int>(local), count_);
      for (std::size_t i = 0; i < count_; ++i) {
        const double left = double{coding->momentum} * double{sums[local][i]};
        errors.add(double{residuals_[local][i]} - left, 1e-6 * std::abs(double{sums[local][i]}));
      }
    }
    return errors;
  }
  if (spec_.scheme->varying) {
    const pith::VaryingCoding coding = spec_.scheme->varying(spec_);
    if (coding.kind == pith::VaryingCoding::Kind::lossless) {
      return compare_in_rank_order(gradients, results);
    }
    Errors errors = compare_coded(coding, false, sums_of(gradients), results);
    errors.merge(check_left(coding.keeps_rest, gradients, results, compressors));
    return errors;
  }
  if (draws_factors(spec_)) {
    Errors errors = compare_drawn(gradients, results);
    errors.merge(check_left(false, gradients, results, compressors));
    return errors;
  }
  if (corrects_momentum(spec_)) return compare_corrected(gradients, results, compressors);
  // A call that may have been bypassed cannot be compared with the plain algorithm. By host, sums
  // are elected that no single rank has. A density that adapts is not known here.
  const bool plain = spec_.sparse() && !spec_.adapts() && !spec_.may_bypass && !spec_.by_host;
  const pith::Electors electors = spec_.scheme->electors;
  if (plain && electors == pith::Electors::each_rank && !list_coding_of(spec_)) {
    return compare_with_topk(gradients, results, compressors);
  }
  // Of what each rank elects and does not keep, only how large it may be is known. Dense calls sum.
  const bool is_dense = compressors.stats(0).bypassed != 0;
  if (!spec_.feedback && elects_lists(spec_) && !is_dense) {
    return compare_bounds(gradients, results, compressors);
  }
  // Without a residual the elected elements are unknown; so are those that common knowledge elects,
  // and those of which only sums decide.
  const bool open = electors == pith::Electors::leader || electors == pith::Electors::owners;
  const bool tells = plain && spec_.feedback && open && !filters_residual(spec_);
  if (!tells) return compare_sums(gradients, results, compressors);
  const Vectors sums = sums_of(gradients);
  Errors errors = compare_sums(gradients, results, compressors);
  const Election election = electors == pith::Electors::leader
                                ? election_of_leader(spec_, team_, step_++, sums, compressors)
                                : election_of_owners(spec_, team_, sums, residuals_, compressors);
  errors.wrong += election.wrong + count_outside(election, sums, results);
  return errors;
}

Errors CompressedCheck::check_left(bool keeps_rest,
                                   const std::vector<std::span<const float>>& gradients,
                                   const std::vector<std::span<const float>>& results,
                                   const Compressors& compressors) {
  if (keeps_rest) return compare_sums(gradients, results, compressors);
  Errors errors;
  for (std::size_t local = 0; local < results.size(); ++local) {
    residuals_[local] = compressors.residual(static_cast<int>(local), count_);
    const auto zeros = std::count(residuals_[local].begin(), residuals_[local].end(), 0.0F);
    errors.wrong += std::ssize(residuals_[local]) - zeros;
  }
  return errors;
}

std::optional<pith::Coding> CompressedCheck::coding_in_use(const Compressors& compressors) const {
  const std::string name = compressors.stats(0).algorithm;
  for (const pith::Form form : pith::all_forms) {
    const bool is_used = is_coded(form) && spec_.may_take(form) && name == name_of(form);
    if (is_used) return coding_of(in_form(spec_, form));
  }
  return spec_.chooses_scheme() ? std::nullopt : coding_of(in_form(spec_, pith::Form::none));
}

Vectors CompressedCheck::sums_of(const std::vector<std::span<const float>>& gradients) const {
  Vectors sums = residuals_;
  for (std::size_t local = 0; local < gradients.size(); ++local) {
    for (std::size_t i = 0; i < count_; ++i) sums[local][i] += gradients[local][i];
  }
  return sums;
}

std::int64_t CompressedCheck::count_outside(
    const Election& election, const Vectors& sums,
    const std::vector<std::span<const float>>& results) const {
  const double rounding = 2 * rounding_of(spec_.values);
  const double least_step =
      spec_.values == pith::DType::f32
          ? 0
          : least_step_of(spec_.values) + parts_ * least_step_of(static_cast<pith::DType>(type_));
  std::int64_t wrong = 0;
  for (std::size_t local = 0; local < results.size(); ++local) {
    for (std::size_t i = 0; i < count_; ++i) {
      const float sum = sums[local][i];
      const float result = results[local][i];
      const float left = residuals_[local][i];
      if (election.elected[i] == 0) {
        wrong += result != 0 || left != sum;
        continue;
      }
      // What rounding this rank's value lost, and possibly what rounding the sum lost.
      const double lost =
          rounding * (std::abs(double(sum)) + parts_ * std::abs(double(result))) + least_step;
      wrong += !(std::abs(double(left)) <= lost);
    }
  }
  return wrong;
}

std::vector<float> CompressedCheck::sum_elected(
    const std::vector<std::span<const float>>& gradients) {
  const std::size_t k = pith::elected_of(spec_.density, count_);
  std::vector<std::vector<std::uint32_t>> indices;
  std::vector<std::vector<float>> values;
  for (std::size_t local = 0; local < gradients.size(); ++local) {
    std::vector<float>& sums = residuals_[local];
    if (!spec_.feedback) std::fill(sums.begin(), sums.end(), 0.0F);
    for (std::size_t i = 0; i < count_; ++i) sums[i] += gradients[local][i];
    Pairs pairs = take_topk(sums, k, spec_.values);
    indices.push_back(std::move(pairs.indices));
    values.push_back(std::move(pairs.values));
  }
  const std::vector<std::uint32_t> all_indices = team_.gather_vectors(indices);
  const std::vector<float> all_values = team_.gather_vectors(values);
  std::vector<float> sums(count_);
  for (std::size_t i = 0; i < all_indices.size(); ++i) sums[all_indices[i]] += all_values[i];
  return sums;
}

Errors CompressedCheck::compare_with_topk(const std::vector<std::span<const float>>& gradients,
                                          const std::vector<std::span<const float>>& results,
                                          const Compressors& compressors) {
  const std::vector<float> sums = sum_elected(gradients);
  Errors errors;
  for (std::size_t local = 0; local < results.size(); ++local) {
    const std::vector<float> residual = compressors.residual(static_cast<int>(local), count_);
    for (std::size_t i = 0; i < count_; ++i) {
      const double expected = double(sums[i]) / parts_;
      errors.add(double(results[local][i]) - expected, allowed_of_result(type_, expected));
      errors.wrong += spec_.feedback && residual[i] != residuals_[local][i];
    }
  }
  return errors;
}

// What was sent has left the residual and, unless the call was dense, the velocity.
Errors CompressedCheck::compare_corrected(const std::vector<std::span<const float>>& gradients,
                                          const std::vector<std::span<const float>>& results,
                                          const Compressors& compressors) {
  const pith::Correction rule = spec_.scheme->correction(spec_);
  velocities_.resize(gradients.size(), std::vector<float>(count_));
  std::vector<std::span<const float>> added;
  for (std::size_t local = 0; local < gradients.size(); ++local) {
    double squares = 0;
    for (const float value : gradients[local]) squares += double(value) * double(value);
    const double own = double(rule.clip) / std::sqrt(double(team_.ranks()));
    const bool clips = rule.clip > 0 && std::sqrt(squares) > own;
    const auto factor = static_cast<float>(clips ? own / std::sqrt(squares) : 1);
    std::vector<float>& velocity = velocities_[local];
    for (std::size_t i = 0; i < count_; ++i) {
      velocity[i] = rule.momentum * velocity[i] + factor * gradients[local][i];
    }
    added.emplace_back(velocity);
  }
  const Vectors before = residuals_;
  Errors errors = compare_sums(added, results, compressors);
  for (std::size_t local = 0; local < gradients.size(); ++local) {
    const auto stats = compressors.stats(static_cast<int>(local));
    if (stats.selected_local == count_) continue;
    std::vector<float>& velocity = velocities_[local];
    for (std::size_t i = 0; i < count_; ++i) {
      const bool stays = residuals_[local][i] == before[local][i] + velocity[i];
      if (!stays) velocity[i] = 0;
    }
  }
  return errors;
}

std::vector<double> CompressedCheck::largest_sent(
    const std::vector<std::span<const float>>& gradients, const Compressors& compressors) const {
  std::vector<double> largest;
  for (std::size_t local = 0; local < gradients.size(); ++local) {
    double own = compressors.stats(static_cast<int>(local)).threshold;
    for (const float value : gradients[local]) own = std::max(own, std::abs(double(value)));
    largest.push_back(own);
  }
  return largest;
}

// A rule's values may be other than the rank's own: means of several, or enlarged by chance. Others
// are the rank's own, rounded to the type `values` when they leave and at every step on their way,
// of which a tree has the most, or by a list's coding to a part of the list's largest.
Errors CompressedCheck::compare_bounds(const std::vector<std::span<const float>>& gradients,
                                       const std::vector<std::span<const float>>& results,
                                       const Compressors& compressors) const {
  const bool by_rule = spec_.scheme->electors == pith::Electors::each_by_rule;
  const std::optional<pith::Coding> coding = list_coding_of(spec_);
  const double coding_loss = coding ? 0.5 / ((1 << (coding->bits - 1)) - 1) : 0;
  const int roundings =
      1 + static_cast<int>(std::bit_width(static_cast<unsigned>(team_.ranks() - 1)));
  const double rounding =
      std::pow(1 + rounding_of(spec_.values), roundings) - 1 + rounding_of_additions(team_.ranks());
  const double least_steps = roundings * team_.ranks() * least_step_of(spec_.values) / parts_;
  const std::vector<double> largest = largest_sent(gradients, compressors);
  std::vector<std::vector<double>> most(gradients.size());
  Errors errors;
  for (std::size_t begin = 0; begin < count_; begin += chunk_elements) {
    const std::size_t size = std::min(chunk_elements, count_ - begin);
    for (std::size_t local = 0; local < gradients.size(); ++local) {
      most[local].assign(size, by_rule ? largest[local] : coding_loss * largest[local]);
      for (std::size_t i = 0; !by_rule && i < size; ++i) {
        most[local][i] += std::abs(double(gradients[local][begin + i]));
      }
    }
    sum(team_, most);
    for (std::size_t local = 0; local < results.size(); ++local) {
      for (std::size_t i = 0; i < size; ++i) {
        const double bound = most[local][i] / parts_;
        const double excess = std::abs(double(results[local][begin + i])) - bound;
        errors.add(std::max(excess, 0.0),  // a NaN stays one
                   bound * rounding + least_steps + allowed_of_result(type_, bound));
      }
    }
  }
  return errors;
}

Errors CompressedCheck::compare_in_rank_order(
    const std::vector<std::span<const float>>& gradients,
    const std::vector<std::span<const float>>& results) const {
  const bool is_exact = type_ == pithFloat32 && parts_ == 1;
  const auto ranks = static_cast<std::size_t>(team_.ranks());
  Errors errors;
  for (std::size_t begin = 0; begin < count_; begin += chunk_elements) {
    const std::size_t size = std::min(chunk_elements, count_ - begin);
    std::vector<std::vector<float>> mine;
    for (const std::span<const float> own : gradients) {
      const std::span<const float> part = own.subspan(begin, size);
      mine.emplace_back(part.begin(), part.end());
    }
    std::vector<float> all = team_.gather_vectors(mine);
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < size; ++i) all[i] += all[rank * size + i];
    }
    for (const std::span<const float> result : results) {
      for (std::size_t i = 0; i < size; ++i) {
        const double expected = double(all[i]) / parts_;
        errors.add(double(result[begin + i]) - expected,
                   is_exact ? 0 : allowed_of_result(type_, expected));
      }
    }
  }
  return errors;
}

// An element is rounded as the largest ones are of which it is a sum.
Errors CompressedCheck::compare_drawn(const std::vector<std::span<const float>>& gradients,
                                      const std::vector<std::span<const float>>& results) {
  constexpr double factor_rounding = 1e-6;
  std::vector<std::vector<double>> sums(gradients.size(), std::vector<double>(count_));
  std::vector<std::vector<double>> sizes(gradients.size(), std::vector<double>(1));
  for (std::size_t local = 0; local < gradients.size(); ++local) {
    const int rank = team_.first_rank() + static_cast<int>(local);
    sizes[local][0] = add_drawn(spec_, step_, rank, gradients[local], sums[local]);
  }
  ++step_;
  sum(team_, sums);
  sum(team_, sizes);
  Errors errors;
  for (std::size_t local = 0; local < results.size(); ++local) {
    const double allowed = factor_rounding * sizes[local][0] / parts_;
    for (std::size_t i = 0; i < count_; ++i) {
      const double expected = sums[local][i] / parts_;
      errors.add(double(results[local][i]) - expected,
                 allowed + allowed_of_result(type_, std::abs(expected) + allowed));
    }
  }
  return errors;
}

// A chunk is a whole number of blocks.
template <class Coding>
Errors CompressedCheck::compare_coded(const Coding& coding, bool votes, const Vectors& mine,
                                      const std::vector<std::span<const float>>& results) const {
  static_assert(chunk_elements % pith::Coding::most_block == 0);
  Errors errors;
  std::vector<std::vector<double>> sums;
  std::vector<std::vector<double>> allowed;
  sums.resize(mine.size());
  allowed.resize(mine.size());
  for (std::size_t begin = 0; begin < count_; begin += chunk_elements) {
    const std::size_t size = std::min(chunk_elements, count_ - begin);
    for (std::size_t local = 0; local < mine.size(); ++local) {
      const auto given = std::span(mine[local]).subspan(begin, size);
      sums[local].assign(given.begin(), given.end());
      allowed[local].assign(size, 0);
      // Of a vote the sum is that of the signs; zero may have either.
      for (std::size_t i = 0; votes && i < size; ++i) {
        allowed[local][i] = given[i] == 0 ? 1 : 0;
        sums[local][i] = given[i] == 0 ? 0 : std::copysign(1.0, double(given[i]));
      }
      add_coding_error(coding, sums[local], allowed[local]);
      // Of what the ranks' values may be decoded to, additions of the sum round off this much.
      const double additions = votes ? 0 : rounding_of_additions(team_.ranks());
      for (std::size_t i = 0; i < size; ++i) {
        allowed[local][i] += additions * (std::abs(sums[local][i]) + allowed[local][i]);
      }
    }
    sum(team_, sums);
    sum(team_, allowed);
    for (std::size_t local = 0; local < results.size(); ++local) {
      if (team_.ranks() > 1) add_coding_error(coding, sums[local], allowed[local]);
      for (std::size_t i = 0; i < size; ++i) {
        const double result = double(results[local][begin + i]);
        const double vote = sums[local][i];
        if (votes) {
          const double won = team_.ranks() / parts_;
          const bool open = std::abs(vote) <= allowed[local][i];
          const double expected = std::copysign(won, open ? result : vote);
          errors.add(result - expected, allowed_of_result(type_, expected));
        } else {
          const double off = allowed[local][i] / parts_;
          errors.add(result - vote / parts_,
                     off + allowed_of_result(type_, std::abs(vote / parts_) + off));
        }
      }
    }
  }
  return errors;
}

Errors CompressedCheck::compare_sums(const std::vector<std::span<const float>>& gradients,
                                     const std::vector<std::span<const float>>& results,
                                     const Compressors& compressors) {
  const bool keeps_losses = spec_.sparse() ? spec_.feedback : keeps_rest(spec_);
  // Each rank rounds what it sends, and the sum is rounded once.
  const double lost =
      keeps_losses ? float_rounding : 2 * rounding_of(spec_.values) + float_rounding;
  std::vector<std::vector<float>> residuals;
  residuals.reserve(static_cast<std::size_t>(team_.size()));
  for (int local = 0; local < team_.size(); ++local) {
    residuals.push_back(compressors.residual(local, count_));
  }
  Errors errors;
  std::vector<std::vector<double>> left(gradients.size());
  std::vector<std::vector<double>> sizes(gradients.size());
  for (std::size_t begin = 0; begin < count_; begin += chunk_elements) {
    const std::size_t size = std::min(chunk_elements, count_ - begin);
    for (std::size_t local = 0; local < gradients.size(); ++local) {
      left[local].resize(size);
      sizes[local].resize(size);
      for (std::size_t i = 0; i < size; ++i) {
        const double gradient = double(gradients[local][begin + i]);
        const double before = double(residuals_[local][begin + i]);
        const double after = double(residuals[local][begin + i]);
        left[local][i] = gradient + before - after;
        sizes[local][i] = std::abs(gradient) + std::abs(before) + std::abs(after);
      }
    }
    sum(team_, left);
    sum(team_, sizes);
    for (std::size_t local = 0; local < results.size(); ++local) {
      // An element of a product of factors is rounded as the largest ones are, here of this chunk.
      const double largest =
          rank_of(spec_) > 0 ? *std::max_element(sizes[local].begin(), sizes[local].end()) : 0;
      for (std::size_t i = 0; i < size; ++i) {
        const double result = double(results[local][begin + i]);
        const bool gone = spec_.sparse() && !spec_.feedback && result == 0;
        const double expected = gone ? 0 : left[local][i] / parts_;
        const double allowed = std::max(sizes[local][i], 4 * largest) / parts_ * lost +
                               least_step_of(spec_.values) + allowed_of_result(type_, expected);
        errors.add(result - expected, allowed);
      }
    }
  }
  residuals_ = std::move(residuals);
  return errors;
}

}  // namespace pith_perf
