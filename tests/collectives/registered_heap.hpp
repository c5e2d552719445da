// The heap of ranks that are threads of a test.
#pragma once

#include "core/heap.hpp"

namespace pith::test {

// Each rank maps it once more for every other one: for 17 ranks 272 times the machine's memory,
// where ThreadSanitizer leaves room for 1.5 TiB.
inline Heap& registered_heap() {
#if defined(__SANITIZE_THREAD__)
  static Heap small(std::size_t{1} << 30);
  return small;
#else
  return Heap::process();
#endif
}

}  // namespace pith::test
