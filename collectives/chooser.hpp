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
  std::uint64_t step = 0;
  // The present choice has no advantage: nothing was agreed on before, or only a probe.
  bool first = false;
  // By candidate: the share of the gradient's squares that is sent; the least of all ranks'.
  std::array<double, most_candidates> gains{};
  // By coded form: the squares of what coding loses, against all; the most of all ranks'.
  std::array<double, coded_form_count> losses{};
  // The share of the squares that the call before sent; the least of all ranks'; negative: not
  // known.
  double sent = -1;
  // The longest time since the call before in which there was no compressed call, and of it only
  // this vector's share, by elements, if others had calls since then, too.
  double between_s = 0;
  // The longest time that the call before took; 0: not known, as the ranks did not begin it
  // together. Not the least: what a rank sends itself may leave after the call.
  double last_s = 0;
};

// What ranks have agreed on of a vector whose calls are dense or not by measured times.
struct BypassFacts {
  std::uint64_t step = 0;
  double seconds = 0;      // the longest of the call in control.timed; 0: not known
  bool on_device = false;  // some rank's vector is on a device
};

class Chooser {
 public:
  // The algorithm of a dense call; `bytes` as in Shape.
  virtual const Algorithm& algorithm(Collective collective, std::size_t bytes) const = 0;
  // Whether a compressed call of `count` elements is faster dense, if its spec leaves that open
  // (bypass=auto). `hosts`: null unless the call sums inside hosts first.
  virtual bool is_faster_dense(const Spec& spec, std::size_t count, const Hosts* hosts) const = 0;
  // Seconds that a call takes, dense or not; 0: not known. `hosts` as above, `earlier`: the calls
  // of this vector that were measured.
  virtual double predicted_seconds(const Spec& spec, std::size_t count, bool dense,
                                   const Hosts* hosts, const LinkSums& earlier) const = 0;
  // Chooses control.density and control.form for a call of `count` elements with density=auto, of
  // which the spec has the present ones, and when ranks agree next.
  virtual void adapt_density(const Spec& spec, std::size_t count, const DensityFacts& facts,
                             DensityControl& control) const = 0;

  // With a fixed density and bypass=auto: what calls of `count` elements begin with at this step,
  // and how they go on. Not for hierarchy=host.
  virtual BypassControl start_bypass(const Spec& spec, std::size_t count,
                                     std::uint64_t step) const = 0;
  virtual void adapt_bypass(const Spec& spec, const BypassFacts& facts,
                            BypassControl& control) const = 0;

 protected:
  ~Chooser() = default;
};

}  // namespace pith
