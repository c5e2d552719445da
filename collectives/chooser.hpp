// Choices that a call leaves to src/model, which implements this interface, so that algorithms need
// not know each other. All ranks get the same answers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/density_control.hpp"

namespace pith {

struct Algorithm;
enum class Collective : std::uint8_t;
class Hosts;

// What ranks have agreed on of a call whose density is to be chosen.
struct DensityFacts {
  // By candidate: the share of the gradient's squares that is sent; the least of all ranks'.
  std::array<double, density_candidates> gains{};
  double between_s = 0;  // the longest time since the call before
  // The longest time that the call before took; 0: not known. Not the least: to a rank that comes
  // late everything is there already, and what it sends itself may leave after the call.
  double last_s = 0;
};

class Chooser {
 public:
  // The algorithm of a dense call; `bytes` as in Shape.
  virtual const Algorithm& algorithm(Collective collective, std::size_t bytes) const = 0;
  // Whether a compressed call of `count` elements is faster dense, if its spec leaves that open
  // (bypass=auto). `hosts`: null unless the call sums inside hosts first.
  virtual bool is_faster_dense(const Spec& spec, std::size_t count, const Hosts* hosts) const = 0;
  // Chooses control.density for a call of `count` elements with density=auto, of which spec.density
  // is the present one.
  virtual void adapt_density(const Spec& spec, std::size_t count, const DensityFacts& facts,
                             DensityControl& control) const = 0;

 protected:
  ~Chooser() = default;
};

}  // namespace pith
