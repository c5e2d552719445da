// Scatter: a sparse list becomes a dense range, every byte of which is written once.
//
// A range larger than the caches is composed block by block in a small zeroed buffer and streamed
// out past the caches; then the few values in the buffer are cleared. Zeroing the range first and
// storing values afterwards would touch their cache lines twice.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/scatter.cpp"
#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void scatter_range(const ScatterKernel::Args& args) { scalar::scatter(args); }

#else

constexpr std::size_t converted_block = 256;      // values
constexpr std::size_t composed_bytes = 16 << 10;  // of a block in the buffer
constexpr std::size_t streamed_bytes = 4 << 20;   // ranges from this size on are streamed

// Converts value / divisor to codes of the output type, for `n` values from `begin` on.
template <DType kType, DType kValues>
HWY_INLINE void convert(const ScatterKernel::Args& args, std::size_t begin, std::size_t n,
                        std::byte* codes) {
  HWY_ALIGN float values[converted_block];
  widen_block<kValues>(values, args.values, begin, n);
  const Float divisor = hn::Set(Floats(), args.divisor);
  for (std::size_t i = 0; i < n; i += hn::Lanes(Floats())) {
    hn::StoreU(hn::Div(hn::LoadU(Floats(), values + i), divisor), Floats(), values + i);
  }
  narrow_block<kType, false>(codes, 0, values, n);
}

// Stores the values whose indices are within `span` elements of `first` to `out`, whose first
// element is `first`. Returns the number of the next value.
template <DType kType, DType kValues>
std::size_t place(const ScatterKernel::Args& args, std::size_t next, std::uint32_t first,
                  std::size_t span, std::byte* out) {
  constexpr std::size_t element = size_of(kType);
  HWY_ALIGN std::byte codes[converted_block * element];
  while (next < args.count) {
    std::size_t n = std::min(converted_block, args.count - next);
    const std::uint32_t* indices = args.indices + next;
    const bool ends_here = indices[n - 1] - first >= span;
    if (ends_here) {
      const std::uint32_t last = first + static_cast<std::uint32_t>(span - 1);
      n = static_cast<std::size_t>(std::upper_bound(indices, indices + n, last) - indices);
    }
    convert<kType, kValues>(args, next, n, codes);
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(out + (indices[i] - first) * element, codes + i * element, element);
    }
    next += n;
    if (ends_here) break;
  }
  return next;
}

template <class D>
HWY_INLINE void stream_block(D d, const std::byte* from, std::byte* to, std::size_t bytes) {
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < bytes; i += 2 * lanes) {
    hn::Stream(hn::Load(d, reinterpret_cast<const std::uint8_t*>(from + i)), d,
               reinterpret_cast<std::uint8_t*>(to + i));
    hn::Stream(hn::Load(d, reinterpret_cast<const std::uint8_t*>(from + i + lanes)), d,
               reinterpret_cast<std::uint8_t*>(to + i + lanes));
  }
}

template <DType kType, DType kValues>
void scatter_cached(const ScatterKernel::Args& args) {
  std::memset(args.out, 0, args.span * size_of(kType));
  place<kType, kValues>(args, 0, args.first, args.span, args.out);
}

template <DType kType, DType kValues>
void scatter_streamed(const ScatterKernel::Args& args) {
  constexpr std::size_t element = size_of(kType);
  constexpr std::size_t line = 64;
  HWY_ALIGN std::byte composed[composed_bytes] = {};
  const std::size_t head_bytes = (line - reinterpret_cast<std::uintptr_t>(args.out) % line) % line;
  if (head_bytes % element != 0) return scatter_cached<kType, kValues>(args);
  std::size_t next = 0;
  for (std::size_t done = 0; done < args.span;) {
    std::size_t n = std::min(composed_bytes / element, args.span - done);
    if (done == 0 && head_bytes != 0) n = std::min(n, head_bytes / element);
    const auto first = args.first + static_cast<std::uint32_t>(done);
    std::byte* out = args.out + done * element;
    const std::size_t end = place<kType, kValues>(args, next, first, n, composed);
    if (n * element == composed_bytes) {
      stream_block(hn::ScalableTag<std::uint8_t>(), composed, out, composed_bytes);
    } else {
      std::memcpy(out, composed, n * element);
    }
    for (; next < end; ++next) {
      std::memset(composed + (args.indices[next] - first) * element, 0, element);
    }
    done += n;
  }
  hwy::FlushStream();
}

void scatter_range(const ScatterKernel::Args& args) {
  if (args.span == 0) return;
  const bool streamed = args.streaming || args.span * size_of(args.type) >= streamed_bytes;
  with_type(args.type, [&](auto type) {
    with_type(args.value_type, [&](auto value_type) {
      streamed ? scatter_streamed<type.value, value_type.value>(args)
               : scatter_cached<type.value, value_type.value>(args);
    });
  });
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(scatter_range);

void scatter(const ScatterKernel::Args& args) { HWY_DYNAMIC_DISPATCH(scatter_range)(args); }

}  // namespace pith::kernels
#endif
