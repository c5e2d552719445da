// The sum of sparse lists: added in a dense scratch vector, collected through a bitmap.
//
// No branches on data: an untouched element counts as -0, to which adding any value gives that
// value. Positions are read from the bitmap eight bits at a time through a table, whose unused
// entries are stored as well and overwritten later.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sum_lists.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/positions-inl.hpp"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void sum_lists_of(const SumListsKernel::Args& args) { scalar::sum_lists(args); }

#else

constexpr std::size_t added_block = 256;
constexpr std::size_t collected_words = 32;  // words of the bitmap that are read before their sums
constexpr std::size_t added_ahead = 32;      // prefetch distance in elements

// Adds a list. For the first one nothing is touched yet, so there is nothing to add to.
template <DType kType, bool kFirst>
void add_list(const SumListsKernel::Args& args, const SparseList& list) {
  HWY_ALIGN float values[added_block];
  for (std::size_t begin = 0; begin < list.count; begin += added_block) {
    const std::size_t n = std::min(added_block, list.count - begin);
    widen_block<kType>(values, list.values, begin, n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t number = begin + i;
      if (number + added_ahead < list.count) {
        hwy::Prefetch(args.sums + (list.indices[number + added_ahead] - args.first));
      }
      const std::size_t at = list.indices[number] - args.first;
      const std::uint64_t old = args.touched[at / 64];
      const std::uint64_t bit = std::uint64_t{1} << (at % 64);
      args.touched[at / 64] = old | bit;
      if constexpr (kFirst) {
        args.sums[at] = values[i];
        continue;
      }
      const std::uint32_t untouched = (~old >> (at % 64) & 1) != 0 ? 0x80000000u : 0;
      const auto bits = std::bit_cast<std::uint32_t>(args.sums[at]) | untouched;
      args.sums[at] = std::bit_cast<float>(bits) + values[i];
    }
  }
}

template <DType kType>
void add_lists(const SumListsKernel::Args& args) {
  for (std::size_t l = 0; l < args.n; ++l) {
    const SparseList& list = args.lists[l];
    l == 0 ? add_list<kType, true>(args, list) : add_list<kType, false>(args, list);
  }
}

HWY_INLINE bool none_touched(const std::uint64_t* four_words) {
  return (four_words[0] | four_words[1] | four_words[2] | four_words[3]) == 0;
}

// Writes the touched indices with their sums, and zeroes the scratch.
void collect_sums(const SumListsKernel::Args& args) {
  std::size_t total_count = 0;
  for (std::size_t l = 0; l < args.n; ++l) total_count += args.lists[l].count;
  const std::size_t room = std::min(total_count, args.span);
  const std::size_t words = (args.span + 63) / 64;
  std::size_t count = 0;
  for (std::size_t word = 0; word < words; word += collected_words) {
    const std::size_t end_word = std::min(words, word + collected_words);
    std::size_t end = count;
    for (std::size_t w = word; w < end_word; ++w) {
      // Skips four empty words at once: whether a single word is empty is hard to predict.
      if (w % 4 == 0 && w + 4 <= end_word && none_touched(args.touched + w)) {
        w += 3;
        continue;
      }
      const std::uint64_t bits = args.touched[w];
      args.touched[w] = 0;
      const auto base = args.first + static_cast<std::uint32_t>(w * 64);
      end += write_positions(bits, base, args.indices + end, room - end);
    }
    for (; count < end; ++count) {
      float& sum = args.sums[args.indices[count] - args.first];
      args.values[count] = sum;
      sum = 0;
    }
  }
  *args.count = count;
}

void sum_lists_of(const SumListsKernel::Args& args) {
  with_type(args.type, [&](auto type) { add_lists<type.value>(args); });
  collect_sums(args);
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(sum_lists_of);

void sum_lists(const SumListsKernel::Args& args) { HWY_DYNAMIC_DISPATCH(sum_lists_of)(args); }

}  // namespace pith::kernels
#endif
