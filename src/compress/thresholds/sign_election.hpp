// Of values that are not zero: the largest of those above zero and the largest magnitudes below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pith {

class SignElection {
 public:
  struct Side {
    std::uint32_t cut = 0;  // bits of the least magnitude that is elected
    std::size_t equal = 0;  // so many of this magnitude are, the first ones
    std::size_t count = 0;  // of all that are elected
    double sum = 0;         // of them
    double mean() const { return count > 0 ? sum / double(count) : 0; }
  };

  // At most `most` of each sign; of equal ones the first. `room`: as many as there are values.
  SignElection(std::span<const float> values, std::size_t most, std::span<std::uint32_t> room);

  const Side& above() const { return above_; }
  const Side& below() const { return below_; }
  std::size_t count() const { return above_.count + below_.count; }
  // Whether there are as many of both signs as there may be.
  bool is_full() const { return above_.count == most_ && below_.count == most_; }
  // The least magnitude of all that are elected; 0: none is.
  float least() const;
  // Of the values in their order, each once.
  bool elects(float value);

 private:
  Side side_of(std::span<const float> values, std::span<std::uint32_t> room, bool negative) const;

  std::size_t most_;
  Side above_;
  Side below_;
};

}  // namespace pith
