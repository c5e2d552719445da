// Whether slots that another core reads are filled through the caches or past them, by what both
// take here and now.
//
// Through the caches a core takes each line from the one that has read it last. Where the two share
// a cache that is quick, and the reader finds the line there; where they do not, it can take eight
// times as long as memory does (Zen 5). Virtual cores may change places at any time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/clock.hpp"
#include "core/copy.hpp"

namespace pith {

class SlotFilling {
 public:
  // Copies; `to` must be a multiple of 16.
  void fill(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (!can_pass_caches) return copy_bytes(to, from, bytes);
    const bool is_trial = ++fills_ % trial_every == 0;
    const bool past = is_past_caches_ != is_trial;
    if (!is_trial && fills_ % timed_every != 0) return copy(to, from, bytes, past);
    const std::uint64_t begin_ns = monotonic_ns();
    copy(to, from, bytes, past);
    note(past, monotonic_ns() - begin_ns, bytes);
  }
  // What a fill of `bytes` has taken, one way or the other.
  void note(bool past_caches, std::uint64_t ns, std::size_t bytes) {
    (past_caches ? past_ : through_).note(static_cast<double>(ns) / static_cast<double>(bytes));
    if (!are_both_timed()) return;
    const double through = through_.least();
    const double past = past_.least();
    if (through > leave_caches * past) is_past_caches_ = true;
    if (through < return_to_caches * past) is_past_caches_ = false;
  }
  bool is_past_caches() const { return is_past_caches_; }
  // Whether both ways have been timed, or there is only one.
  bool is_known() const { return !can_pass_caches || are_both_timed(); }

 private:
  // The reader gains by caches, too, which is not seen here: past them only where that saves much.
  // Where two cores share a cache, the writer takes half the time through it.
  static constexpr double leave_caches = 2.5;
  static constexpr double return_to_caches = 1.5;
  // Primes: the sends of a call, perhaps always alike, all get their turn.
  static constexpr std::uint32_t timed_every = 13;
  static constexpr std::uint32_t trial_every = 509;
  static constexpr std::uint32_t first_trial = 32;

  struct Times {
    void note(double ns_a_byte) { last[noted++ % last.size()] = ns_a_byte; }
    // Nothing has disturbed it.
    double least() const { return *std::min_element(last.begin(), last.end()); }

    static constexpr double none = std::numeric_limits<double>::infinity();
    std::array<double, 4> last{none, none, none, none};
    std::size_t noted = 0;
  };

  bool are_both_timed() const { return through_.noted != 0 && past_.noted != 0; }

  static void copy(std::byte* to, const std::byte* from, std::size_t bytes, bool past_caches) {
    return past_caches ? copy_bytes_past_caches(to, from, bytes) : copy_bytes(to, from, bytes);
  }

  Times through_;
  Times past_;
  std::uint32_t fills_ = trial_every - first_trial;
  bool is_past_caches_ = false;
};

}  // namespace pith
