// How a communicator makes its dense calls, by collective and size, where that differs from the
// model's own choice: what rank 0 has learnt and all ranks have agreed on.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/algorithm.hpp"
#include "core/error.hpp"

namespace pith {

// Sizes of a class differ by less than a factor of two, and the largest is a power of two.
class SizeClass {
 public:
  static constexpr std::size_t count = 42;

  explicit constexpr SizeClass(std::size_t bytes)
      : index_(std::min<std::size_t>(std::bit_width(bytes == 0 ? 0 : bytes - 1), count - 1)) {}
  static constexpr SizeClass of_index(std::size_t index) {
    return SizeClass(std::size_t{1} << index);
  }
  constexpr std::size_t index() const { return index_; }
  constexpr std::size_t largest() const { return std::size_t{1} << index_; }

 private:
  std::size_t index_;
};

class Choices {
 public:
  // An algorithm and its variant.
  using Plan = std::uint8_t;
  static std::size_t plan_count() { return variant_count * algorithms().size(); }
  static Plan plan_of(const Algorithm& algorithm, Variant variant = Variant::usual);
  static const Algorithm& algorithm_of(Plan plan) {
    return algorithms()[plan % algorithms().size()];
  }
  static Variant variant_of(Plan plan) { return static_cast<Variant>(plan / algorithms().size()); }
  // "ring in long chunks"
  static std::string text_of(Plan plan);
  static constexpr Plan by_model = 0xff;

  // How often calls are made by rivals; see turn.hpp.
  enum class Trials : std::uint8_t {
    early,   // a few of the first calls
    seldom,  // some calls
    often,   // half of the calls: the choice is known to be a guess
  };

  struct Cell {
    Plan chosen = by_model;
    Trials trials = Trials::early;
    std::uint8_t rival_count = 0;
    std::array<Plan, 8> rivals{};  // may be faster, as far as is known

    // If it is none yet, and there is room.
    void add_rival(Plan plan);
    void remove_rival(Plan plan);
    bool operator==(const Cell&) const = default;
  };

  Cell& at(Collective collective, SizeClass size) {
    return cells_[static_cast<std::size_t>(collective)][size.index()];
  }
  const Cell& at(Collective collective, SizeClass size) const {
    return cells_[static_cast<std::size_t>(collective)][size.index()];
  }

  // For the parameters of an epoch: the cells that differ from `start`.
  std::string save(const Choices& start) const;
  // `start` with the saved cells; an error if the text is not from save(), or names an algorithm of
  // another collective or one that cannot serve so many ranks.
  static Expected<Choices> restore(const Choices& start, std::string_view text, int ranks);

 private:
  std::array<std::array<Cell, SizeClass::count>, collective_count> cells_{};
};

}  // namespace pith
