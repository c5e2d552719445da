#include "kernels/kth_magnitude.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <span>

namespace pith::kernels {

namespace {

constexpr unsigned radix_bits = 12;
constexpr std::size_t most_sampled = std::size_t{1} << 14;

struct Scratch {
  std::array<std::uint32_t, std::size_t{1} << 18> candidates;
  std::array<std::uint32_t, most_sampled> sample;
  std::array<std::uint32_t, std::size_t{1} << radix_bits> bins;
};

Scratch& scratch_of_thread() {
  thread_local const auto scratch = std::make_unique<Scratch>();
  return *scratch;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu; }

unsigned shift_of(Bracket bracket) {
  const auto width = static_cast<unsigned>(std::bit_width(bracket.high - bracket.low));
  return width > radix_bits ? width - radix_bits : 0;
}

// The bin that holds the k-th largest; k becomes its rank within that bin.
Bracket bin_of_kth(std::span<const std::uint32_t> bins, Bracket counted, std::size_t& k) {
  const unsigned shift = shift_of(counted);
  std::size_t bin = (counted.high - counted.low) >> shift;
  while (k > bins[bin]) k -= bins[bin--];
  const auto low = counted.low + (static_cast<std::uint32_t>(bin) << shift);
  return {low, std::min(counted.high, low + ((1u << shift) - 1))};
}

// The k-th largest of `candidates`, all of which are in the bracket, and how many exceed it;
// overwrites `candidates`.
KthMagnitude kth_candidate(std::span<std::uint32_t> candidates, Bracket bracket, std::size_t k,
                           Scratch& scratch) {
  constexpr std::size_t few = 512;
  std::size_t rank = k;
  while (candidates.size() > few && bracket.low < bracket.high) {
    const unsigned shift = shift_of(bracket);
    scratch.bins.fill(0);
    for (const std::uint32_t bits : candidates) ++scratch.bins[(bits - bracket.low) >> shift];
    bracket = bin_of_kth(scratch.bins, bracket, rank);
    std::size_t left = 0;
    for (const std::uint32_t bits : candidates) {
      candidates[left] = bits;
      left += bits >= bracket.low && bits <= bracket.high;
    }
    candidates = candidates.first(left);
  }
  if (bracket.low == bracket.high) return {bracket.low, k - rank};
  const auto place = candidates.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(candidates.begin(), place, candidates.end(), std::greater<>());
  const std::uint32_t kth = *place;
  const auto larger = std::count_if(candidates.begin(), candidates.end(),
                                    [kth](std::uint32_t bits) { return bits > kth; });
  return {kth, k - rank + static_cast<std::size_t>(larger)};
}

// A bracket that very likely holds the k-th: 4.5 standard deviations of a random sample's rank.
Bracket guess(const float* values, std::size_t count, std::size_t k, Scratch& scratch) {
  const std::size_t taken = std::min(count / 32, most_sampled);
  const std::size_t stride = count / taken;
  for (std::size_t i = 0; i < taken; ++i) scratch.sample[i] = bits_of(values[i * stride]);
  const double share = double(k) / double(count);
  const double rank = share * double(taken);
  const double margin = 4.5 * std::sqrt(rank * (1 - share)) + 2;
  const auto sample = std::span(scratch.sample).first(taken);
  const auto ranked = [&](double at) {
    const auto place = sample.begin() + static_cast<std::ptrdiff_t>(at);
    std::nth_element(sample.begin(), place, sample.end(), std::greater<>());
    return *place;
  };
  Bracket bracket;
  if (rank - margin >= 0) bracket.high = ranked(rank - margin);
  if (rank + margin < double(taken)) bracket.low = ranked(rank + margin);
  return bracket;
}

// Narrows to the bin, one of 4096, that holds the k-th of the elements in the bracket.
Bracket narrowed(const float* values, std::size_t count, Bracket bracket, std::size_t k,
                 Scratch& scratch) {
  const unsigned shift = shift_of(bracket);
  scratch.bins.fill(0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(values[i]);
    if (bits >= bracket.low && bits <= bracket.high) ++scratch.bins[(bits - bracket.low) >> shift];
  }
  return bin_of_kth(scratch.bins, bracket, k);
}

}  // namespace

KthMagnitude kth_magnitude(const float* values, std::size_t count, std::size_t k,
                           CollectFunction collect) {
  constexpr std::size_t few = 4096;
  Scratch& scratch = scratch_of_thread();
  Bracket bracket;        // holds the k-th
  std::size_t above = 0;  // elements above the bracket
  Bracket tried = count <= few ? bracket : guess(values, count, k, scratch);
  while (true) {
    const BracketCounts found =
        collect(values, count, tried, scratch.candidates.data(), scratch.candidates.size());
    if (k <= found.above) {
      bracket.low = tried.high + 1;
    } else if (k > found.above + found.inside) {
      bracket.high = tried.low - 1;
      above = found.above + found.inside;
    } else {
      bracket = tried;
      above = found.above;
      if (bracket.low == bracket.high) return {bracket.low, above};
      if (found.complete) {
        const auto candidates = std::span(scratch.candidates).first(found.inside);
        const KthMagnitude kth = kth_candidate(candidates, bracket, k - above, scratch);
        return {kth.bits, above + kth.above};
      }
    }
    tried = narrowed(values, count, bracket, k - above, scratch);
  }
}

}  // namespace pith::kernels
