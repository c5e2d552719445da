// Times as links and cores give them: lognormal around the true one, some far too late. The same
// from the same seed with every standard library.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

namespace pith::test {

class Noise {
 public:
  // `late`: how many times are ten times as long.
  Noise(std::uint64_t seed, double log_sd, double late)
      : state_(seed), log_sd_(log_sd), late_(late) {}

  double of(double seconds) {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * uniform());
    return seconds * std::exp(log_sd_ * normal) * (uniform() < late_ ? 10 : 1);
  }
  // Powers of two from 8 bytes to 64 MiB.
  std::size_t bytes() { return std::size_t{8} << (next() % 24); }

 private:
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // splitmix64
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
  double log_sd_;
  double late_;
};

}  // namespace pith::test
