// Adds up lists of pairs, one block of the index code at a time, so that the sums stay in the
// cache.
#pragma once

#include <span>

#include "collectives/lists/result_writer.hpp"

namespace pith {

class ListAdder {
 public:
  static constexpr std::size_t block = EncodeIndicesKernel::block_elements;

  // For at most `most` lists at once, in ranges of at most `elements` elements.
  ListAdder(Call& call, std::size_t most, std::size_t elements)
      : call_(call),
        sums_(call.compute(), room_for(elements) * sizeof(float)),
        touched_(call.compute(), room_for(elements) / 8),
        parts_(call.host_compute(), most * sizeof(SparseList)) {
    call.run<ZeroKernel>({sums_.bytes().data, sums_.bytes().size});
    call.run<ZeroKernel>({touched_.bytes().data, touched_.bytes().size});
  }

  // Adds up the pairs of all lists in `range`, which is at most a block: every index once, with the
  // sum of its values in float32, in the order of the lists. Returns the number of pairs. `indices`
  // and `values` have room for a block of pairs, or for all pairs of the lists.
  std::size_t add(std::span<const SparseList> lists, DType type, Range range,
                  std::uint32_t* indices, std::byte* values) {
    auto* parts = reinterpret_cast<SparseList*>(parts_.bytes().data);
    for (std::size_t i = 0; i < lists.size(); ++i) {
      parts[i] = part_of(lists[i], type, range.begin, range.size);
    }
    std::size_t count = 0;
    call_.run<SumListsKernel>({parts, lists.size(), type, static_cast<std::uint32_t>(range.begin),
                               range.size, reinterpret_cast<float*>(sums_.bytes().data),
                               reinterpret_cast<std::uint64_t*>(touched_.bytes().data), indices,
                               reinterpret_cast<float*>(values), &count});
    return count;
  }

 private:
  // Rounded up to whole words of one bit per element.
  static constexpr std::size_t room_for(std::size_t elements) {
    return std::min(block, (elements / 64 + 1) * 64);
  }

  Call& call_;
  Scratch sums_;
  Scratch touched_;
  Scratch parts_;
};

// Adds up all lists in a range, in this order and in float32. `sum` becomes one run.
inline void add_lists(ListAdder& adder, std::span<const SparseList> lists, DType type, Range range,
                      PairList& sum) {
  std::size_t total = 0;
  for (const SparseList& list : lists) total += list.count;
  sum.begin(DType::f32);
  sum.reserve(total);
  std::size_t count = 0;
  for (std::size_t k = 0; k < chunks_in(range.size, ListAdder::block); ++k) {
    count += adder.add(lists, type, chunk_of(range, ListAdder::block, k), sum.indices(count),
                       sum.values(count));
  }
  sum.end_run(count);
}

// Adds up lists in a range of any length and writes the sums to the result of a call.
class SumWriter {
 public:
  SumWriter(Call& call, std::size_t most)
      : adder_(call, most, ListAdder::block),
        indices_(call.compute(), ListAdder::block * sizeof(std::uint32_t)),
        values_(call.compute(), ListAdder::block * sizeof(float)) {}

  void write(std::span<const SparseList> lists, DType type, Range range, ResultWriter& writer) {
    for_each_block(lists, type, range,
                   [&](Range part, const SparseList& sums) { writer.put(part, sums, DType::f32); });
  }
  // The same where the range has been zeroed already.
  void add(std::span<const SparseList> lists, DType type, Range range, ResultWriter& writer) {
    for_each_block(lists, type, range,
                   [&](Range, const SparseList& sums) { writer.add(0, sums, DType::f32); });
  }

 private:
  template <class Visit>
  void for_each_block(std::span<const SparseList> lists, DType type, Range range,
                      const Visit& visit) {
    auto* const indices = reinterpret_cast<std::uint32_t*>(indices_.bytes().data);
    std::byte* const values = values_.bytes().data;
    for (std::size_t k = 0; k < chunks_in(range.size, ListAdder::block); ++k) {
      const Range part = chunk_of(range, ListAdder::block, k);
      const std::size_t count = adder_.add(lists, type, part, indices, values);
      visit(part, SparseList{indices, values, count});
    }
  }

  ListAdder adder_;
  Scratch indices_;
  Scratch values_;
};

}  // namespace pith
