#include "tests/collectives/gtopk_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tests/collectives/largest.hpp"
#include "tests/collectives/rounded.hpp"

namespace pith::test {

namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// Each tensor by itself.
class GtopkReference final : public SchemeReference {
 public:
  explicit GtopkReference(const SparseCase& c) : case_(c), spec_(*Spec::parse(c.spec)) {
    for (const std::size_t count : c.counts) {
      residuals_.emplace_back(at(c.ranks), std::vector<float>(count));
    }
  }

  std::string check(SparseProgram& program) override {
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      const std::string failure = check(program, t);
      if (!failure.empty()) return fmt::format("tensor {}: {}", t, failure);
    }
    return {};
  }

 private:
  using Pairs = std::map<std::size_t, float>;  // by element

  std::string check(SparseProgram& program, std::size_t t) {
    std::vector<Pairs> given;
    for (int r = 0; r < case_.ranks; ++r) given.push_back(give(program, r, t));
    std::vector<Pairs> lists = given;
    std::vector<std::vector<Pairs>> left(at(case_.ranks));
    const auto rank_at = [this](int place) {
      return at(case_.order.empty() ? place : case_.order[at(place)]);
    };
    for (int bit = 1; bit < case_.ranks; bit *= 2) {
      for (int place = 0; place + bit < case_.ranks; place += 2 * bit) {
        const std::size_t rank = rank_at(place);
        merge(lists[rank], lists[rank_at(place + bit)], case_.counts[t], left[rank]);
      }
    }
    const Pairs& kept = lists[rank_at(0)];
    for (std::size_t r = 0; r < given.size(); ++r) {
      std::vector<float>& own = residuals_[t][r];
      for (const auto& [element, value] : given[r]) own[element] += kept.count(element) ? 0 : value;
      for (const Pairs& some : left[r]) {
        for (const auto& [element, value] : some) {
          if (kept.count(element)) own[element] += value;
        }
      }
    }
    return compare(program, t, kept);
  }

  // What a rank elects, which leaves its residual.
  Pairs give(SparseProgram& program, int rank, std::size_t t) {
    std::vector<float>& own = residuals_[t][at(rank)];
    std::vector<float> magnitudes(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      own[i] += program.gradient(rank, t)[i];
      magnitudes[i] = std::fabs(own[i]);
    }
    Pairs given;
    for (const std::size_t i : largest(magnitudes, elected(own.size()))) {
      given[i] = rounded(own[i], spec_.values);
      own[i] -= given[i];
    }
    return given;
  }
  std::size_t elected(std::size_t count) const {
    return count == 0 ? 0 : elected_of(spec_.density, count);
  }

  // What the rank of `sums` does with the list of another. `left`: what it does not pass on.
  void merge(Pairs& sums, const Pairs& other, std::size_t count, std::vector<Pairs>& left) const {
    for (const auto& [element, value] : other) sums[element] += value;
    std::vector<float> magnitudes(count, never_elected);
    for (const auto& [element, value] : sums) {
      magnitudes[element] = std::min(std::fabs(value), std::numeric_limits<float>::max());
    }
    Pairs kept;
    for (const std::size_t i : largest(magnitudes, elected(count))) {
      kept[i] = rounded(sums[i], spec_.values);
      sums[i] -= kept[i];
    }
    left.push_back(std::exchange(sums, kept));
  }

  std::string compare(SparseProgram& program, std::size_t t, const Pairs& kept) {
    const float divisor = case_.average ? float(case_.ranks) : 1.0f;
    const std::vector<float>& result = program.result(0, t);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto found = kept.find(i);
      const float delivered = found == kept.end() ? 0 : found->second / divisor;
      if (result[i] == delivered) continue;
      return fmt::format("element {}: {} and not {}", i, result[i], delivered);
    }
    for (int r = 0; r < case_.ranks; ++r) {
      std::vector<float>& own = residuals_[t][at(r)];
      if (!spec_.feedback) std::ranges::fill(own, 0.0f);
      if (program.residual(r, t) != own) return fmt::format("rank {}: another residual", r);
    }
    return {};
  }

  SparseCase case_;
  Spec spec_;
  std::vector<std::vector<std::vector<float>>> residuals_;  // by tensor and rank
};

}  // namespace

std::unique_ptr<SchemeReference> gtopk_reference(const SparseCase& c) {
  return std::make_unique<GtopkReference>(c);
}

}  // namespace pith::test
