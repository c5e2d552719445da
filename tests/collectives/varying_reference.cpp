#include "tests/collectives/varying_reference.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "collectives/patterns.hpp"
#include "collectives/sparse/coded_cost.hpp"
#include "compress/scheme.hpp"

namespace pith::test {

namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// The owner of an element adds up all ranks' values in rank order, the others' as they are decoded,
// and what it sends of the sum is decoded everywhere. Coding is from the paper: multiples of a step
// of about twice the bound; or nothing at all.
class VaryingReference final : public SchemeReference {
 public:
  explicit VaryingReference(const SparseCase& c)
      : case_(c), spec_(*Spec::parse(c.spec)), coding_(spec_.scheme->varying(spec_)) {
    for (const std::size_t count : c.counts) {
      rests_.emplace_back(at(c.ranks), std::vector<float>(count));
    }
  }

  std::string check(SparseProgram& program) override {
    for (const std::vector<Part>& parcel : parcels()) {
      for (const Part& part : parcel) {
        std::string failure = compare(program, part);
        if (!failure.empty()) return failure;
      }
    }
    for (int r = 0; r < case_.ranks; ++r) {
      for (std::size_t t = 0; t < case_.counts.size(); ++t) {
        if (!coding_.keeps_rest) {
          if (!program.compressor(r, t).residual_is_zero()) return "something is left";
        } else if (program.residual(r, t) != rests_[t][at(r)]) {
          return fmt::format("tensor {}, rank {}: another residual", t, r);
        }
      }
    }
    return {};
  }

 private:
  struct Part {
    std::size_t tensor;
    Range range;
    int owner;
  };

  // The parts of vectors that one rank adds up, by parcel.
  std::vector<std::vector<Part>> parcels() const {
    const std::size_t all =
        std::accumulate(case_.counts.begin(), case_.counts.end(), std::size_t{0});
    const std::size_t most = CodedShape::parcel(all);
    std::vector<std::vector<Part>> parcels;
    for (std::size_t begin = 0; begin < all; begin += most) {
      parcels.push_back(parts_of({begin, std::min(most, all - begin)}));
    }
    return parcels;
  }
  // `parcel`: of the line of all elements.
  std::vector<Part> parts_of(Range parcel) const {
    const std::size_t unit = coding_.kind == VaryingCoding::Kind::bounded ? 128 : 1;
    const std::size_t units = (parcel.size + unit - 1) / unit;
    std::vector<Part> parts;
    std::size_t begin_of_tensor = 0;
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      const std::size_t end_of_tensor = begin_of_tensor + case_.counts[t];
      for (int owner = 0; owner < case_.ranks; ++owner) {
        const Range own = block(units, case_.ranks, owner);
        const std::size_t first = parcel.begin + std::min(own.begin * unit, parcel.size);
        const std::size_t last =
            parcel.begin + std::min((own.begin + own.size) * unit, parcel.size);
        const std::size_t begin = std::max(first, begin_of_tensor);
        const std::size_t end = std::min(last, end_of_tensor);
        if (begin < end) parts.push_back({t, {begin - begin_of_tensor, end - begin}, owner});
      }
      begin_of_tensor = end_of_tensor;
    }
    return parts;
  }

  // As values come out of a message.
  std::vector<float> coded(std::vector<float> values) const {
    if (coding_.kind == VaryingCoding::Kind::lossless) return values;
    for (std::size_t begin = 0; begin < values.size(); begin += 128) {
      const std::size_t end = std::min<std::size_t>(begin + 128, values.size());
      code_block(std::span(values).subspan(begin, end - begin));
    }
    return values;
  }
  void code_block(std::span<float> block) const {
    float largest = 0;
    for (const float value : block) largest = std::max(largest, std::fabs(value));
    const float bound = largest > 0 ? std::min(coding_.absolute, coding_.relative * largest) : 0;
    if (largest <= bound || largest == 0)
      return std::fill(block.begin(), block.end(), 0.0f), void();
    const float step = bound * 1.9921875f;
    const float factor = 1 / step;
    if (step < std::numeric_limits<float>::min() || largest * factor > 4194304) return;
    std::vector<float> decoded;
    std::uint32_t most = 0;
    for (const float value : block) {
      const float k = std::nearbyint(value * factor);
      const auto twice = static_cast<std::uint32_t>(2 * std::fabs(k));
      most |= k < 0 ? twice - 1 : twice;
      decoded.push_back(k * step);
      if (std::fabs(value - decoded.back()) > bound) return;  // left as it is
    }
    unsigned bits = 0;
    while (most >> bits != 0) ++bits;
    const std::size_t head = std::isfinite(coding_.relative) ? 5 : 1;
    if (head + 16 * bits > 4 * block.size()) return;  // would not shrink
    std::copy(decoded.begin(), decoded.end(), block.begin());
  }

  std::vector<float> values_of(SparseProgram& program, const Part& part, int rank) const {
    const auto begin = static_cast<std::ptrdiff_t>(part.range.begin);
    const auto from = program.gradient(rank, part.tensor).begin() + begin;
    std::vector<float> values(from, from + static_cast<std::ptrdiff_t>(part.range.size));
    const float* rest = rests_[part.tensor][at(rank)].data() + begin;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += rest[i];
    return values;
  }
  float* rest_of(const Part& part, int rank) {
    return rests_[part.tensor][at(rank)].data() + part.range.begin;
  }

  // The sum; what the ranks keep afterwards.
  std::vector<float> add_up(SparseProgram& program, const Part& part) {
    const std::size_t n = part.range.size;
    std::vector<float> sums(n);
    for (int r = 0; r < case_.ranks; ++r) {
      const std::vector<float> values = values_of(program, part, r);
      const std::vector<float> sent = r == part.owner ? values : coded(values);
      for (std::size_t i = 0; i < n; ++i) sums[i] = r == 0 ? sent[i] : sums[i] + sent[i];
      if (!coding_.keeps_rest || r == part.owner) continue;
      for (std::size_t i = 0; i < n; ++i) rest_of(part, r)[i] = values[i] - sent[i];
    }
    std::vector<float> result = case_.ranks == 1 ? sums : coded(sums);
    if (!coding_.keeps_rest) return result;
    const std::vector<float> own = values_of(program, part, part.owner);
    for (std::size_t i = 0; i < n; ++i) {
      rest_of(part, part.owner)[i] = own[i] + ((sums[i] - result[i]) - own[i]);
    }
    return result;
  }

  std::string compare(SparseProgram& program, const Part& part) {
    const std::vector<float> sums = add_up(program, part);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const float expected = sums[i] / (case_.average ? float(case_.ranks) : 1.0f);
      const float found = program.result(0, part.tensor)[part.range.begin + i];
      if (found == expected) continue;
      return fmt::format("tensor {}, element {}: {} and not {}", part.tensor, part.range.begin + i,
                         found, expected);
    }
    return {};
  }

  SparseCase case_;
  Spec spec_;
  VaryingCoding coding_;
  std::vector<std::vector<std::vector<float>>> rests_;  // by tensor and rank
};

}  // namespace

std::unique_ptr<SchemeReference> varying_reference(const SparseCase& c) {
  return std::make_unique<VaryingReference>(c);
}

}  // namespace pith::test
