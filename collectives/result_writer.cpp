#include "collectives/result_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace pith {

namespace {

// Results from this size on leave the caches before anybody reads them.
constexpr std::size_t streamed_bytes = std::size_t{8} << 20;

}  // namespace

void ResultWriter::put(Range range, const SparseList& sums, DType type) {
  if (!tensor_.sparse.count) {
    call_.run<ScatterKernel>({tensor_.recv + range.begin * size_of(tensor_.type), tensor_.type,
                              static_cast<std::uint32_t>(range.begin), range.size, sums.indices,
                              sums.values, type, sums.count, divisor_,
                              tensor_.count * size_of(tensor_.type) >= streamed_bytes});
  } else if (PairList* list = tensor_.sparse.list) {
    list->reserve(sums.count);
    const std::size_t at = list->count();
    std::copy_n(sums.indices, sums.count, list->indices(at));
    call_.run<ConvertKernel>(
        {list->values(at), DType::f32, sums.values, type, sums.count, divisor_});
    list->end_run(sums.count);
  } else if (count_ < tensor_.sparse.capacity) {
    const SparseOutput& out = tensor_.sparse;
    const std::size_t room = std::min(sums.count, out.capacity - count_);
    std::copy_n(sums.indices, room, out.indices + count_);
    call_.run<ConvertKernel>({out.values + count_ * size_of(tensor_.type), tensor_.type,
                              sums.values, type, room, divisor_});
  }
  count_ += sums.count;
}

void ResultWriter::add(std::size_t before, const SparseList& sums, DType type) {
  count_ += before + sums.count;
  if (sums.count == 0) return;
  const std::size_t unit = size_of(tensor_.type);
  const Scratch memory(call_.host_compute(), sums.count * unit);
  const std::byte* values = memory.bytes().data;
  call_.run<ConvertKernel>(
      {memory.bytes().data, tensor_.type, sums.values, type, sums.count, divisor_});
  for (std::size_t i = 0; i < sums.count; ++i) {
    std::memcpy(tensor_.recv + sums.indices[i] * unit, values + i * unit, unit);
  }
}

void ResultWriter::put_nan() {
  if (!tensor_.sparse.count) {
    call_.run<FillNanKernel>({tensor_.recv, tensor_.type, tensor_.count});
    return;
  }
  if (tensor_.sparse.list) return;  // whoever keeps lists is told otherwise
  // One pair is enough to be seen, and all that there may be room for.
  const SparseOutput& out = tensor_.sparse;
  count_ = std::min({std::size_t{1}, out.capacity, tensor_.count});
  if (count_ == 0) return;
  out.indices[0] = 0;
  call_.run<FillNanKernel>({out.values, tensor_.type, 1});
}

Error ResultWriter::finish() {
  if (!tensor_.sparse.count) return {};
  *tensor_.sparse.count = count_;
  if (tensor_.sparse.list) return {};
  if (count_ <= tensor_.sparse.capacity) return {};
  return {Code::invalid_argument,
          fmt::format("capacity is {}, expected at least {}, which n tells: the first pairs are "
                      "there, and the call counts",
                      tensor_.sparse.capacity, count_)};
}

}  // namespace pith
