// Keep the k largest magnitudes of a list: exact selection in linear time, in place.
//
// A sample brackets the k-th magnitude; one pass counts what is above the bracket and collects what
// is in it, a few per cent; a radix selection finds the k-th there [Floyd and Rivest 1975]. Where
// the sample has misled, or the bracket holds too much, counting passes narrow it first, by twelve
// bits each. A last pass splits the list.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/keep_largest.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include <cmath>
#include <memory>

#include "hwy/highway.h"
#include "kernels/kth_magnitude.hpp"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void keep_largest_of(const KeepLargestKernel::Args& args) { scalar::keep_largest(args); }

#else

HWY_INLINE std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

// Counts the magnitudes above the bracket, and collects those in it while there is room.
BracketCounts collect(const float* values, std::size_t count, Bracket bracket,
                      std::uint32_t* candidates, std::size_t room) {
  const Integers d;
  const std::size_t lanes = hn::Lanes(d);
  const Integer below = hn::Set(d, static_cast<std::int32_t>(bracket.low) - 1);
  const Integer high = hn::Set(d, static_cast<std::int32_t>(bracket.high));
  BracketCounts counts;
  Integer above = hn::Zero(d);  // minus the number of lanes above; does not reach -2^31
  std::size_t stored = 0;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Integer m = magnitude(hn::LoadU(Floats(), values + i));
    const auto over = hn::Gt(m, high);
    above = hn::Add(above, hn::VecFromMask(d, over));
    const auto inside = hn::AndNot(over, hn::Gt(m, below));
    const Compression compress(inside);
    if (stored + lanes <= room) {
      hn::StoreU(compress(Words(), hn::BitCast(Words(), m)), Words(), candidates + stored);
      stored += compress.count;
    }
    counts.inside += compress.count;
  }
  counts.above = static_cast<std::size_t>(-hn::GetLane(hn::SumOfLanes(d, above)));
  for (; i < count; ++i) {
    const std::uint32_t bits = bits_of(values[i]);
    counts.above += bits > bracket.high;
    if (bits < bracket.low || bits > bracket.high) continue;
    if (stored < room) candidates[stored++] = bits;
    ++counts.inside;
  }
  counts.complete = stored == counts.inside;
  return counts;
}

// Dropped elements, stored back to the accumulator in batches with prefetches.
class Losers {
 public:
  explicit Losers(float* accumulator) : accumulator_(accumulator) {}
  HWY_INLINE void add(Word indices, Float values, hn::Mask<Integers> lost) {
    const Compression compress(lost);
    hn::StoreU(compress(Words(), indices), Words(), indices_ + count_);
    hn::StoreU(compress(Floats(), values), Floats(), values_ + count_);
    count_ += compress.count;
    if (count_ >= batch) put_back();
  }
  void add(std::uint32_t index, float value) {
    indices_[count_] = index;
    values_[count_++] = value;
    if (count_ >= batch) put_back();
  }
  void put_back() {
    constexpr std::size_t ahead = 16;
    if (accumulator_ == nullptr) {
      count_ = 0;
      return;
    }
    for (std::size_t i = 0; i < std::min(ahead, count_); ++i) {
      hwy::Prefetch(accumulator_ + indices_[i]);
    }
    for (std::size_t i = 0; i < count_; ++i) {
      if (i + ahead < count_) hwy::Prefetch(accumulator_ + indices_[i + ahead]);
      accumulator_[indices_[i]] = values_[i];
    }
    count_ = 0;
  }

 private:
  static constexpr std::size_t batch = 512;
  float* accumulator_;
  std::size_t count_ = 0;
  HWY_ALIGN std::uint32_t indices_[batch + HWY_MAX_BYTES];
  HWY_ALIGN float values_[batch + HWY_MAX_BYTES];
};

// Keeps magnitudes above `cut`, and the first `ties` of those equal to it.
double split(const KeepLargestKernel::Args& args, std::uint32_t cut, std::size_t ties) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const Integer equal = hn::Set(Integers(), static_cast<std::int32_t>(cut));
  const Integer below = hn::Set(Integers(), static_cast<std::int32_t>(cut) - 1);
  Losers losers(args.accumulator);
  Double squares0 = hn::Zero(Doubles()), squares1 = squares0;
  double squares = 0;
  std::size_t kept = 0;
  std::size_t i = 0;
  const auto split_one = [&] {
    const std::uint32_t index = args.indices[i];
    const float value = args.values[i];
    const std::uint32_t bits = bits_of(value);
    ++i;
    if (bits < cut || (bits == cut && ties == 0)) return losers.add(index, value);
    if (bits == cut) --ties;
    args.indices[kept] = index;
    args.values[kept++] = value;
    squares += double(value) * double(value);
  };
  while (i + lanes <= args.count) {
    const Float values = hn::LoadU(d, args.values + i);
    const Word indices = hn::LoadU(Words(), args.indices + i);
    const Integer m = magnitude(values);
    auto keep = hn::Gt(m, equal);
    if (ties > 0) {
      const std::size_t found = hn::CountTrue(Integers(), hn::Eq(m, equal));
      if (found > ties) {
        const std::size_t end = i + lanes;
        while (i < end) split_one();
        continue;
      }
      ties -= found;
      keep = hn::Gt(m, below);
    }
    const Compression compress(keep);
    hn::StoreU(compress(Words(), indices), Words(), args.indices + kept);
    hn::StoreU(compress(d, values), d, args.values + kept);
    kept += compress.count;
    add_squares(hn::IfThenElseZero(hn::RebindMask(d, keep), values), squares0, squares1);
    losers.add(indices, values, hn::Not(keep));
    i += lanes;
  }
  while (i < args.count) split_one();
  losers.put_back();
  return squares + total(squares0, squares1);
}

void keep_largest_of(const KeepLargestKernel::Args& args) {
  const KthMagnitude kth = kth_magnitude(args.values, args.count, args.k, collect);
  *args.smallest = std::bit_cast<float>(kth.bits);
  *args.squares = split(args, kth.bits, args.k - kth.above);
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(keep_largest_of);

void keep_largest(const KeepLargestKernel::Args& args) {
  HWY_DYNAMIC_DISPATCH(keep_largest_of)(args);
}

}  // namespace pith::kernels
#endif
