#include "tests/collectives/kept_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/patterns.hpp"
#include "tests/collectives/largest.hpp"
#include "tests/collectives/rounded.hpp"

namespace pith::test {

namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// All tensors as one vector. What ok-topk keeps is about k, so it is taken from the result, and
// must be a share's largest sums.
class KeptReference final : public SchemeReference {
 public:
  explicit KeptReference(const SparseCase& c)
      : case_(c), spec_(*Spec::parse(c.spec)), exact_(c.spec.starts_with("spardl")) {
    for (const std::size_t count : c.counts) {
      all_ += count;
      if (count > 0) k_ += elected_of(spec_.density, count);
    }
    residuals_.assign(at(c.ranks), std::vector<float>(all_));
  }

  std::string check(SparseProgram& program) override {
    std::vector<std::vector<float>> given;
    for (int r = 0; r < case_.ranks; ++r) given.push_back(give(program, r));
    const std::vector<float> result = joined([&](std::size_t t) { return program.result(0, t); });
    const std::vector<bool> was_given = any(given);
    const std::vector<float> sums = sum(given, was_given);
    std::vector<bool> kept(all_);
    std::size_t number = 0;
    for (int share = 0; share < case_.ranks; ++share) {
      const Range range = block(all_, case_.ranks, share);
      std::vector<float> magnitudes(range.size, never_elected);
      std::size_t delivered = 0;
      for (std::size_t i = 0; i < range.size; ++i) {
        const std::size_t element = range.begin + i;
        if (was_given[element]) magnitudes[i] = std::fabs(sums[element]);
        delivered += result[element] != 0 ? 1 : 0;
      }
      for (const std::size_t i : largest(magnitudes, exact_ ? quota(share) : delivered)) {
        kept[range.begin + i] = true;
        ++number;
      }
    }
    for (std::size_t i = 0; i < all_ && !exact_; ++i) {
      const bool tells = rounded(sums[i], spec_.values) != 0;
      if (was_given[i] && !tells) kept[i] = has_left(program, given, i);
    }
    ++step_;
    if (!exact_ && number == 0 && !std::ranges::all_of(sums, [](float one) { return one == 0; }))
      return "nothing is kept";
    return compare(program, given, sums, kept, result);
  }

 private:
  template <class Of>
  std::vector<float> joined(const Of& of) const {
    std::vector<float> all;
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      const std::vector<float> one = of(t);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  // What a rank elects, which leaves its residual.
  std::vector<float> give(SparseProgram& program, int rank) {
    std::vector<float>& own = residuals_[at(rank)];
    const std::vector<float> gradient =
        joined([&](std::size_t t) { return program.gradient(rank, t); });
    for (std::size_t i = 0; i < all_; ++i) own[i] += gradient[i];
    std::vector<float> given(all_, std::numeric_limits<float>::quiet_NaN());
    std::size_t begin = 0;
    for (const std::size_t count : case_.counts) {
      std::vector<float> magnitudes(count);
      for (std::size_t i = 0; i < count; ++i) magnitudes[i] = std::fabs(own[begin + i]);
      const std::size_t k = count == 0 ? 0 : elected_of(spec_.density, count);
      for (const std::size_t i : largest(magnitudes, k)) {
        given[begin + i] = rounded(own[begin + i], spec_.values);
        own[begin + i] -= given[begin + i];
      }
      begin += count;
    }
    return given;
  }
  std::vector<bool> any(const std::vector<std::vector<float>>& given) const {
    std::vector<bool> found(all_);
    for (const auto& one : given) {
      for (std::size_t i = 0; i < all_; ++i) found[i] = found[i] || !std::isnan(one[i]);
    }
    return found;
  }
  // In rank order.
  std::vector<float> sum(const std::vector<std::vector<float>>& given,
                         const std::vector<bool>& was_given) const {
    std::vector<float> sums(all_);
    for (const auto& one : given) {
      for (std::size_t i = 0; i < all_; ++i) {
        if (was_given[i] && !std::isnan(one[i])) sums[i] += one[i];
      }
    }
    return sums;
  }
  // Of an element that is zero in the result if it is kept, too.
  bool has_left(SparseProgram& program, const std::vector<std::vector<float>>& given,
                std::size_t element) const {
    for (std::size_t r = 0; r < given.size(); ++r) {
      if (std::isnan(given[r][element]) || given[r][element] == 0) continue;
      const auto rank = static_cast<int>(r);
      const std::vector<float> left =
          joined([&](std::size_t t) { return program.residual(rank, t); });
      return left[element] != residuals_[r][element] + given[r][element];
    }
    return true;
  }
  std::size_t quota(int share) const {
    const int shares = std::min(case_.ranks, static_cast<int>(all_));
    if (share >= shares) return 0;
    const auto turn = static_cast<int>(step_ % at(shares));
    return block(k_, shares, wrap(share + turn, shares)).size;
  }
  std::string compare(SparseProgram& program, const std::vector<std::vector<float>>& given,
                      const std::vector<float>& sums, const std::vector<bool>& kept,
                      const std::vector<float>& result) {
    const float divisor = case_.average ? float(case_.ranks) : 1.0f;
    for (std::size_t i = 0; i < all_; ++i) {
      const float delivered = kept[i] ? rounded(sums[i], spec_.values) : 0.0f;
      if (result[i] != delivered / divisor) {
        return fmt::format("element {}: {} and not {}", i, result[i], delivered / divisor);
      }
      if (kept[i]) residuals_[owner(i)][i] += sums[i] - delivered;
      for (std::size_t r = 0; r < given.size() && !kept[i]; ++r) {
        if (!std::isnan(given[r][i])) residuals_[r][i] += given[r][i];
      }
    }
    for (int r = 0; r < case_.ranks; ++r) {
      std::vector<float>& own = residuals_[at(r)];
      if (!spec_.feedback) std::ranges::fill(own, 0.0f);
      if (joined([&](std::size_t t) { return program.residual(r, t); }) != own) {
        return fmt::format("rank {}: another residual", r);
      }
    }
    return {};
  }
  std::size_t owner(std::size_t element) const {
    int share = 0;
    while (block(all_, case_.ranks, share + 1).begin <= element && share + 1 < case_.ranks) ++share;
    return at(share);
  }

  SparseCase case_;
  Spec spec_;
  bool exact_;
  std::size_t all_ = 0;
  std::size_t k_ = 0;
  std::uint64_t step_ = 0;
  std::vector<std::vector<float>> residuals_;  // by rank
};

}  // namespace

std::unique_ptr<SchemeReference> kept_reference(const SparseCase& c) {
  return std::make_unique<KeptReference>(c);
}

}  // namespace pith::test
