#include "tests/collectives/coded_reference.hpp"

#include <algorithm>
#include <numeric>

#include "collectives/patterns.hpp"
#include "collectives/sparse/coded_cost.hpp"
#include "compress/scheme.hpp"
#include "core/mix.hpp"
#include "kernels/coded_values.hpp"

namespace pith::test {

namespace {

// Each rank codes its values; the owner of a block adds them up, rank by rank, and codes the sum.
// Where a rest is kept the owner begins with its own values as they are, and keeps what coding
// loses of the sum; the others what it loses of theirs.
class CodedReference final : public SchemeReference {
 public:
  explicit CodedReference(const SparseCase& c)
      : case_(c), spec_(*Spec::parse(c.spec)), coding_(spec_.scheme->coding(spec_)) {
    for (const std::size_t count : c.counts) {
      rests_.emplace_back(static_cast<std::size_t>(c.ranks), std::vector<float>(count));
    }
  }

  std::string check(SparseProgram& program) override {
    int turn = 0;
    for (const std::vector<Block>& parcel : parcels()) {
      for (int place = 0; place < case_.ranks; ++place) {
        const Range own = block(parcel.size(), case_.ranks, place);
        const int owner = (place + turn) % case_.ranks;
        for (std::size_t b = own.begin; b < own.begin + own.size; ++b) {
          std::string failure = compare(program, parcel[b], owner);
          if (!failure.empty()) return failure;
        }
      }
      ++turn;
    }
    ++step_;
    for (int r = 0; r < case_.ranks; ++r) {
      for (std::size_t t = 0; t < case_.counts.size(); ++t) {
        std::string failure = check_rest(program, r, t);
        if (!failure.empty()) return failure;
      }
    }
    return {};
  }

 private:
  std::string check_rest(SparseProgram& program, int r, std::size_t t) const {
    if (!coding_.keeps()) {
      return program.compressor(r, t).residual_is_zero() ? "" : "something is left";
    }
    const std::vector<float> found = program.residual(r, t);
    const std::vector<float>& expected = rests_[t][static_cast<std::size_t>(r)];
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] == expected[i]) continue;
      return fmt::format("tensor {}, rank {}, element {}: {} is left and not {}", t, r, i, found[i],
                         expected[i]);
    }
    return {};
  }

  struct Block {
    std::size_t tensor;
    Range range;
  };

  // The blocks of each parcel: of every tensor's part of it, from its beginning on.
  std::vector<std::vector<Block>> parcels() const {
    const std::size_t all =
        std::accumulate(case_.counts.begin(), case_.counts.end(), std::size_t{0});
    const std::size_t parcel = CodedShape::parcel(all);
    std::vector<std::vector<Block>> parcels(1);
    std::size_t room = parcel;
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      for (std::size_t begin = 0; begin < case_.counts[t];) {
        const std::size_t end = std::min(begin + room, case_.counts[t]);
        room -= end - begin;
        for (; begin < end; begin = std::min<std::size_t>(begin + coding_.block, end)) {
          parcels.back().push_back({t, {begin, std::min<std::size_t>(coding_.block, end - begin)}});
        }
        if (room > 0) continue;
        parcels.emplace_back();
        room = parcel;
      }
    }
    return parcels;
  }

  // Values as they come out of a message.
  std::vector<float> coded(const std::vector<float>& values, const Block& block, int rank,
                           bool sums) const {
    const std::uint64_t of_tensor =
        mix(mix(mix(mix(0, spec_.seed), step_), case_.counts[block.tensor]), block.tensor);
    const CodingInput input = {
        sums ? float(case_.ranks) : 1.0f,
        mix(of_tensor, 2 * static_cast<std::uint64_t>(rank) + (sums ? 1 : 0)),
        static_cast<std::uint32_t>(block.range.begin)};
    std::vector<std::byte> bytes(coding_.bytes(values.size()));
    Coding coding = coding_;
    if (sums) coding.clip = 0;
    kernels::scalar::encode_values({coding, input, values.data(), values.size(), bytes.data()});
    std::vector<float> back(values.size());
    kernels::scalar::decode_values({coding_, bytes.data(), values.size(),
                                    reinterpret_cast<std::byte*>(back.data()), DType::f32, 1});
    return back;
  }

  // A rank's values of a block, with what it kept of them.
  std::vector<float> values_of(SparseProgram& program, const Block& block, int rank) const {
    const auto begin = static_cast<std::ptrdiff_t>(block.range.begin);
    const auto from = program.gradient(rank, block.tensor).begin() + begin;
    std::vector<float> values(from, from + static_cast<std::ptrdiff_t>(block.range.size));
    const float* rest = rests_[block.tensor][static_cast<std::size_t>(rank)].data() + begin;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += rest[i];
    return values;
  }

  // What is left of the values.
  void keep(const Block& block, int rank, const std::vector<float>& values,
            const std::vector<float>& changes) {
    float* rest = rests_[block.tensor][static_cast<std::size_t>(rank)].data() + block.range.begin;
    for (std::size_t i = 0; coding_.keeps_rest && i < values.size(); ++i) {
      rest[i] = values[i] + changes[i];
    }
  }

  // Momentums keep a part.
  void decay(SparseProgram& program, const Block& block) {
    for (int r = 0; r < case_.ranks; ++r) {
      const std::vector<float> values = values_of(program, block, r);
      float* rest = rests_[block.tensor][static_cast<std::size_t>(r)].data() + block.range.begin;
      for (std::size_t i = 0; i < values.size(); ++i) {
        rest[i] = values[i] + values[i] / (-1 / (1 - coding_.momentum));
      }
    }
  }

  // Of the sum; what the ranks keep afterwards.
  std::vector<float> add_up(SparseProgram& program, const Block& block, int owner) {
    const bool as_it_is = coding_.keeps_rest && case_.ranks > 1;
    std::vector<float> sums;
    const auto add = [&](const std::vector<float>& more) {
      if (sums.empty()) return void(sums = more);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    };
    const std::vector<float> own = values_of(program, block, owner);
    if (as_it_is) add(own);
    for (int r = 0; r < case_.ranks; ++r) {
      if (as_it_is && r == owner) continue;
      const std::vector<float> values = values_of(program, block, r);
      std::vector<float> sent = coded(values, block, r, false);
      add(sent);
      for (float& value : sent) value = -value;
      keep(block, r, values, sent);
    }
    if (coding_.momentum > 0) decay(program, block);
    if (case_.ranks == 1) return sums;
    std::vector<float> result = coded(sums, block, owner, true);
    if (!as_it_is) return result;
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = (sums[i] - result[i]) - own[i];
    keep(block, owner, own, sums);
    return result;
  }

  std::string compare(SparseProgram& program, const Block& block, int owner) {
    const std::vector<float> sums = add_up(program, block, owner);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const float expected = sums[i] / (case_.average ? float(case_.ranks) : 1.0f);
      const float found = program.result(0, block.tensor)[block.range.begin + i];
      if (found == expected) continue;
      return fmt::format("tensor {}, element {}: {} and not {}", block.tensor,
                         block.range.begin + i, found, expected);
    }
    return {};
  }

  SparseCase case_;
  Spec spec_;
  Coding coding_;
  std::uint64_t step_ = 0;
  std::vector<std::vector<std::vector<float>>> rests_;  // by tensor and rank
};

}  // namespace

std::unique_ptr<SchemeReference> coded_reference(const SparseCase& c) {
  return std::make_unique<CodedReference>(c);
}

}  // namespace pith::test
