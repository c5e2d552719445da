// Accumulate and select: one pass over gradient and accumulator, bound by memory.
//
// Four vectors at a time. Their largest magnitude tells in one test whether anything passes or is
// not finite; at low densities nearly all groups end there. In the others, passing elements are
// compressed in registers and stored as whole vectors, each over the unused rest of the one before
// [compressing stores are microcoded on AMD Zen 4]. The list grows too slowly for the hardware to
// prefetch it. Rare cases go element by element: the end of a range, numbers that are not finite,
// and a list that is nearly full.
//
// Tried and slower [measured, Zen 3]: streaming stores, by 20-30 %; noting the groups that pass and
// processing them in the L1 cache afterwards; compressing every group from 1.5 % on. A bitmap
// instead of the test, with the list made from a block's bits [Zen 4, AVX-512]: 10 % faster at 1 %
// of normal numbers, where every other test is mispredicted, but 3 % slower on gradients.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/select.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/magnitude_counts.hpp"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void accumulate_pass(const AccumulateKernel::Args& args) { scalar::accumulate(args); }
void select_pass(const SelectKernel::Args& args) { scalar::select(args); }

#else

// What is added to the accumulator: nothing, or a gradient of this type.
enum class Source : std::uint8_t { none, f32, f16, bf16 };
// For elements that pass: there are none, they go to the list, or they are only counted.
enum class Mode : std::uint8_t { add, list, count };

constexpr std::int32_t infinity_bits = 0x7f800000;
constexpr std::size_t group_vectors = 4;
constexpr std::size_t list_ahead = 64;       // from the list's end to its prefetch, in elements
constexpr std::size_t counted_block = 1024;  // elements in a step with a histogram
// Prefetchers of older processors stop at page boundaries. Those of Zen 4 do not, and with software
// prefetch a pass takes 1.3 times as long there; with AVX2 on the same core, 1.15. Other processors
// with AVX-512 have not been measured.
constexpr bool prefetches = HWY_TARGET > HWY_AVX3;
// Prefetch distance in elements, by the number of arrays read.
constexpr std::size_t ahead_of_two = 256, ahead_of_one = 512;

constexpr DType type_of(Source source) {
  if (source == Source::f16) return DType::f16;
  return source == Source::bf16 ? DType::bf16 : DType::f32;
}

// The least magnitude bits that pass.
std::int32_t cut_of(float threshold) {
  if (!(threshold == threshold)) return infinity_bits;
  if (threshold <= 0) return 0;
  std::int32_t bits;
  std::memcpy(&bits, &threshold, sizeof bits);
  return bits;
}

struct Pass {
  float* accumulator;
  const std::byte* gradient;
  std::size_t count;
  std::int32_t cut;
  std::uint32_t first;
  std::uint32_t* indices;
  float* values;
  std::size_t capacity;
  MagnitudeHistogram* histogram;
  std::size_t done = 0;  // elements processed
  PassResult result = {};
};

template <Source kSource, bool kFresh>
HWY_INLINE Float sum_at(const float* accumulator, const std::byte* gradient, std::size_t i) {
  const Float old = kFresh ? hn::Zero(Floats()) : hn::LoadU(Floats(), accumulator + i);
  if constexpr (kSource == Source::none) return old;
  return hn::Add(old, load_values<type_of(kSource)>(gradient, i));
}

// Processes the next `n` elements, at most a group, one by one with all checks.
template <Source kSource, bool kFresh>
HWY_NOINLINE void run_careful(Pass& pass, std::size_t n) {
  constexpr std::size_t most = group_vectors * hn::MaxLanes(Floats());
  constexpr std::size_t element = kSource == Source::none ? 0 : size_of(type_of(kSource));
  HWY_ALIGN float old[most] = {};
  HWY_ALIGN float sum[most];
  HWY_ALIGN std::byte gradient[most * sizeof(float)] = {};
  float* const accumulator = pass.accumulator + pass.done;
  if (!kFresh) std::memcpy(old, accumulator, n * sizeof(float));
  if (element != 0) std::memcpy(gradient, pass.gradient + pass.done * element, n * element);
  for (std::size_t i = 0; i < most; i += hn::Lanes(Floats())) {
    hn::StoreU(sum_at<kSource, kFresh>(old, gradient, i), Floats(), sum + i);
  }
  PassResult& result = pass.result;
  for (std::size_t i = 0; i < n; ++i) {
    std::int32_t bits;
    std::memcpy(&bits, sum + i, sizeof bits);
    bits &= 0x7fffffff;
    if (bits >= infinity_bits) {
      ++result.nonfinite;
      accumulator[i] = kSource == Source::none ? 0.0f : old[i];
      continue;
    }
    result.squares += double(sum[i]) * double(sum[i]);
    accumulator[i] = sum[i];
    if (bits < pass.cut) continue;
    if (result.selected < pass.capacity) {
      pass.indices[result.selected] = pass.first + static_cast<std::uint32_t>(pass.done + i);
      pass.values[result.selected] = sum[i];
      accumulator[i] = 0;
    }
    ++result.selected;
  }
  pass.done += n;
}

// Handles one vector of a group in which something passes; returns what stays in the accumulator.
template <Mode kMode>
HWY_INLINE Float pick(Pass& pass, std::size_t& selected, Float sum, hn::Mask<Integers> passes,
                      std::size_t i) {
  if constexpr (kMode == Mode::list) {
    const Words words;
    const Compression compress(passes);
    const Word index =
        hn::Add(hn::Set(words, pass.first + static_cast<std::uint32_t>(i)), hn::Iota(words, 0));
    hn::StoreU(compress(words, index), words, pass.indices + selected);
    hn::StoreU(compress(Floats(), sum), Floats(), pass.values + selected);
    selected += compress.count;
    return hn::IfThenZeroElse(hn::RebindMask(Floats(), passes), sum);
  }
  selected += hn::CountTrue(Integers(), passes);
  return sum;
}

template <Source kSource>
HWY_INLINE void prefetch_group(const Pass& pass, std::size_t i) {
  if constexpr (!prefetches) return;
  constexpr std::size_t line = 64;
  constexpr std::size_t ahead = kSource == Source::none ? ahead_of_one : ahead_of_two;
  const std::size_t group = group_vectors * hn::Lanes(Floats());
  for (std::size_t at = i + ahead; at < i + ahead + group; at += line / sizeof(float)) {
    hwy::Prefetch(pass.accumulator + at);
  }
  if constexpr (kSource == Source::none) return;
  constexpr std::size_t element = size_of(type_of(kSource));
  for (std::size_t at = i + ahead; at < i + ahead + group; at += line / element) {
    hwy::Prefetch(pass.gradient + at * element);
  }
}

// Processes whole groups until `end`, or until one needs run_careful.
template <Mode kMode, Source kSource, bool kFresh>
HWY_INLINE void run_groups(Pass& pass, std::size_t end) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t group = group_vectors * lanes;
  float* HWY_RESTRICT accumulator = pass.accumulator;
  const std::byte* HWY_RESTRICT gradient = pass.gradient;
  const Integer below_cut =
      hn::Set(Integers(), (kMode == Mode::add ? infinity_bits : pass.cut) - 1);
  const Integer largest = hn::Set(Integers(), infinity_bits - 1);
  Double squares0 = hn::Zero(Doubles()), squares1 = squares0, squares2 = squares0,
         squares3 = squares0;
  std::size_t i = pass.done;
  std::size_t selected = pass.result.selected;
  for (; i + group <= end; i += group) {
    prefetch_group<kSource>(pass, i);
    const Float s0 = sum_at<kSource, kFresh>(accumulator, gradient, i);
    const Float s1 = sum_at<kSource, kFresh>(accumulator, gradient, i + lanes);
    const Float s2 = sum_at<kSource, kFresh>(accumulator, gradient, i + 2 * lanes);
    const Float s3 = sum_at<kSource, kFresh>(accumulator, gradient, i + 3 * lanes);
    const Integer m0 = magnitude(s0), m1 = magnitude(s1), m2 = magnitude(s2), m3 = magnitude(s3);
    const Integer most = hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
    const bool quiet = hn::AllFalse(Integers(), hn::Gt(most, below_cut));
    if (kMode == Mode::add && !quiet) break;
    if (quiet) {
      add_squares(s0, squares0, squares1);
      add_squares(s1, squares2, squares3);
      add_squares(s2, squares0, squares1);
      add_squares(s3, squares2, squares3);
      if constexpr (kSource == Source::none) continue;
      hn::StoreU(s0, d, accumulator + i);
      hn::StoreU(s1, d, accumulator + i + lanes);
      hn::StoreU(s2, d, accumulator + i + 2 * lanes);
      hn::StoreU(s3, d, accumulator + i + 3 * lanes);
      continue;
    }
    if (!hn::AllFalse(Integers(), hn::Gt(most, largest))) break;
    if (kMode == Mode::list && pass.capacity - selected < group) break;
    add_squares(s0, squares0, squares1);
    add_squares(s1, squares2, squares3);
    add_squares(s2, squares0, squares1);
    add_squares(s3, squares2, squares3);
    if constexpr (kMode == Mode::list) {
      hwy::Prefetch(pass.indices + selected + list_ahead);
      hwy::Prefetch(pass.values + selected + list_ahead);
    }
    const Float left0 = pick<kMode>(pass, selected, s0, hn::Gt(m0, below_cut), i);
    const Float left1 = pick<kMode>(pass, selected, s1, hn::Gt(m1, below_cut), i + lanes);
    const Float left2 = pick<kMode>(pass, selected, s2, hn::Gt(m2, below_cut), i + 2 * lanes);
    const Float left3 = pick<kMode>(pass, selected, s3, hn::Gt(m3, below_cut), i + 3 * lanes);
    if (kMode == Mode::count && kSource == Source::none) continue;
    hn::StoreU(left0, d, accumulator + i);
    hn::StoreU(left1, d, accumulator + i + lanes);
    hn::StoreU(left2, d, accumulator + i + 2 * lanes);
    hn::StoreU(left3, d, accumulator + i + 3 * lanes);
  }
  pass.done = i;
  pass.result.selected = selected;
  pass.result.squares += total(hn::Add(squares0, squares2), hn::Add(squares1, squares3));
}

template <Source kSource, bool kFresh, bool kSelect>
void run_until(Pass& pass, std::size_t end) {
  const std::size_t group = group_vectors * hn::Lanes(Floats());
  while (true) {
    if (!kSelect) {
      run_groups<Mode::add, kSource, kFresh>(pass, end);
    } else if (pass.result.selected < pass.capacity) {
      run_groups<Mode::list, kSource, kFresh>(pass, end);
    } else {
      run_groups<Mode::count, kSource, kFresh>(pass, end);
    }
    if (pass.done == end) return;
    run_careful<kSource, kFresh>(pass, std::min(group, end - pass.done));
  }
}

// Adds the sums of the elements up to `end` to the histogram before the pass changes them; the data
// stay in the cache.
template <Source kSource, bool kFresh>
void count_sums(const Pass& pass, std::size_t end, MagnitudeCounts& counts) {
  HWY_ALIGN float sums[counted_block];
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = pass.done;
  for (; i + lanes <= end; i += lanes) {
    hn::StoreU(sum_at<kSource, kFresh>(pass.accumulator, pass.gradient, i), Floats(),
               sums + (i - pass.done));
  }
  counts.add(sums, i - pass.done);
  if (i == end) return;
  constexpr std::size_t element = kSource == Source::none ? 0 : size_of(type_of(kSource));
  HWY_ALIGN float old[hn::MaxLanes(Floats())] = {};
  HWY_ALIGN std::byte gradient[HWY_MAX_BYTES] = {};
  std::memcpy(old, pass.accumulator + i, (end - i) * sizeof(float));
  if (element != 0) std::memcpy(gradient, pass.gradient + i * element, (end - i) * element);
  hn::StoreU(sum_at<kSource, kFresh>(old, gradient, 0), Floats(), sums);
  counts.add(sums, end - i);
}

template <Source kSource, bool kFresh, bool kSelect>
void run_pass(Pass& pass) {
  if (pass.histogram == nullptr) return run_until<kSource, kFresh, kSelect>(pass, pass.count);
  MagnitudeCounts& counts = MagnitudeCounts::of_thread();
  while (pass.done < pass.count) {
    const std::size_t end = std::min(pass.done + counted_block, pass.count);
    count_sums<kSource, kFresh>(pass, end, counts);
    run_until<kSource, kFresh, kSelect>(pass, end);
  }
  counts.move_to(*pass.histogram);
}

template <Source kSource, bool kSelect>
void run_source(Pass& pass, bool fresh) {
  fresh ? run_pass<kSource, true, kSelect>(pass) : run_pass<kSource, false, kSelect>(pass);
}

template <bool kSelect>
void run_whole(Pass& pass, DType type, bool fresh) {
  if (pass.gradient == nullptr) {
    if (fresh) std::memset(pass.accumulator, 0, pass.count * sizeof(float));
    return run_pass<Source::none, false, kSelect>(pass);
  }
  if (type == DType::f32) return run_source<Source::f32, kSelect>(pass, fresh);
  if (type == DType::f16) return run_source<Source::f16, kSelect>(pass, fresh);
  return run_source<Source::bf16, kSelect>(pass, fresh);
}

void accumulate_pass(const AccumulateKernel::Args& args) {
  // With this cut and an empty list nothing is selected.
  Pass pass{args.accumulator, args.gradient, args.count, infinity_bits, 0,
            nullptr,          nullptr,       0,          args.histogram};
  run_whole<false>(pass, args.type, args.fresh);
  *args.result = pass.result;
}

void select_pass(const SelectKernel::Args& args) {
  Pass pass{args.pass.accumulator,
            args.pass.gradient,
            args.pass.count,
            cut_of(args.threshold),
            args.first,
            args.indices,
            args.values,
            args.capacity,
            args.pass.histogram};
  run_whole<true>(pass, args.pass.type, args.pass.fresh);
  *args.pass.result = pass.result;
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(accumulate_pass);
HWY_EXPORT(select_pass);

void accumulate(const AccumulateKernel::Args& args) { HWY_DYNAMIC_DISPATCH(accumulate_pass)(args); }
void select(const SelectKernel::Args& args) { HWY_DYNAMIC_DISPATCH(select_pass)(args); }

}  // namespace pith::kernels
#endif
