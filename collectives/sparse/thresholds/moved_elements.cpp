#include "collectives/sparse/thresholds/moved_elements.hpp"

#include <cstring>

#include "core/kernel_args.hpp"

namespace pith {

// Pairs from a device are copied once more, because a list's memory is not pinned.
Task<Error> MovedElements::take(Compressor& compressor) {
  PairList& list = compressor.taken();
  list.reserve(count);
  const std::size_t index_bytes = count * sizeof(std::uint32_t);
  const std::size_t value_bytes = count * size_of(list.type());
  std::uint32_t* const to_indices = list.indices(list.count());
  std::byte* const to_values = list.values(list.count());
  if (count > 0 && !queue_.on_device()) {
    std::memcpy(to_indices, indices(), index_bytes);
    queue_.run<RoundKernel>({accumulator_, indices(), values(), count, to_values, list.type()});
  } else if (count > 0) {
    const Scratch copied(queue_.host(), index_bytes + value_bytes);
    std::byte* const from = copied.bytes().data;
    queue_.run<CopyKernel>({from, indices_.bytes().data, index_bytes});
    co_await queue_.until(queue_.run<RoundKernel>(
        {accumulator_, indices(), values(), count, from + index_bytes, list.type()}));
    std::memcpy(to_indices, from, index_bytes);
    std::memcpy(to_values, from + index_bytes, value_bytes);
  }
  list.end_run(std::exchange(count, 0));
  co_return Error();
}

}  // namespace pith
