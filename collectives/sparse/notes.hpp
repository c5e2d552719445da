// Notes: what every rank tells all others with the last sum of a call, without a message of its
// own. They are elements that are summed. The first one counts the ranks that found elements that
// are not finite. For scores each rank fills its own places, which are zero on the others.
//
// A score travels as digits, which every type of values holds exactly.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/election.hpp"
#include "core/dtype.hpp"

namespace pith {

class Notes {
 public:
  Notes(DType type, int ranks, bool has_scores)
      : digit_bits_(type == DType::f32 ? 16 : 8), ranks_(has_scores ? ranks : 0) {}

  std::size_t count() const { return 1 + static_cast<std::size_t>(ranks_) * digits(); }
  void write(std::span<float> notes, int rank, bool nonfinite, double score) const {
    std::fill(notes.begin(), notes.end(), 0.0f);
    notes[0] = nonfinite ? 1.0f : 0.0f;
    if (ranks_ == 0) return;
    auto bits = std::bit_cast<std::uint64_t>(score);
    for (std::size_t d = 0; d < digits(); ++d, bits >>= digit_bits_) {
      notes[at(rank) + d] = static_cast<float>(bits & ((1u << digit_bits_) - 1));
    }
  }
  // From the sums:
  static bool nonfinite(std::span<const float> notes) { return notes[0] != 0; }
  // Returns a score that can be compared, whatever the sums are.
  double score(std::span<const float> notes, int rank) const {
    const float most = static_cast<float>((1u << digit_bits_) - 1);
    std::uint64_t bits = 0;
    for (std::size_t d = digits(); d-- > 0;) {
      const float digit = notes[at(rank) + d];
      const bool is_digit = digit >= 0 && digit <= most;
      bits = bits << digit_bits_ | static_cast<std::uint64_t>(is_digit ? digit : 0);
    }
    return score_of(std::bit_cast<double>(bits));
  }

 private:
  std::size_t digits() const { return 64 / digit_bits_; }
  std::size_t at(int rank) const { return 1 + static_cast<std::size_t>(rank) * digits(); }

  unsigned digit_bits_;
  int ranks_;
};

}  // namespace pith
