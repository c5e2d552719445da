#include "collectives/lists/result_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace pith {

namespace {

// Results from this size on are evicted from the caches before they are read.
constexpr std::size_t streamed_bytes = std::size_t{8} << 20;
// Pairs for one kernel or copy on a device.
constexpr std::size_t pairs_at_once = std::size_t{1} << 18;

}  // namespace

Fence ResultWriter::put(Range range, const SparseList& sums, DType type) {
  Fence written;
  if (tensor_.sparse.count) {
    put_pairs(sums, type);
  } else if (tensor_.device) {
    put_on_device(range, sums, type);
  } else {
    written = call_.run<ScatterKernel>(
        {tensor_.recv + range.begin * size_of(tensor_.type), tensor_.type,
         static_cast<std::uint32_t>(range.begin), range.size, sums.indices, sums.values, type,
         sums.count, divisor_, tensor_.count * size_of(tensor_.type) >= streamed_bytes});
  }
  count_ += sums.count;
  return written;
}

void ResultWriter::put_pairs(const SparseList& sums, DType type) {
  if (PairList* list = tensor_.sparse.list) {
    list->reserve(sums.count);
    const std::size_t at = list->count();
    std::copy_n(sums.indices, sums.count, list->indices(at));
    call_.run<ConvertKernel>(
        {list->values(at), DType::f32, sums.values, type, sums.count, divisor_});
    list->end_run(sums.count);
    return;
  }
  const SparseOutput& out = tensor_.sparse;
  if (count_ >= out.capacity) return;
  const std::size_t room = std::min(sums.count, out.capacity - count_);
  if (tensor_.device) return put_pairs_on_device({sums.indices, sums.values, room}, type);
  std::copy_n(sums.indices, room, out.indices + count_);
  call_.run<ConvertKernel>({out.values + count_ * size_of(tensor_.type), tensor_.type, sums.values,
                            type, room, divisor_});
}

// Collects the pairs in host memory, so that a few long copies suffice.
void ResultWriter::put_pairs_on_device(const SparseList& sums, DType type) {
  const std::size_t unit = size_of(tensor_.type);
  for (std::size_t done = 0; done < sums.count;) {
    if (waiting_.count == waiting_.room) {
      write_waiting();
      wait_for_pairs(std::min({pairs_at_once, tensor_.count, tensor_.sparse.capacity - written_}));
    }
    const std::size_t n = std::min(sums.count - done, waiting_.room - waiting_.count);
    auto* indices = reinterpret_cast<std::uint64_t*>(waiting_.indices.bytes().data);
    std::copy_n(sums.indices + done, n, indices + waiting_.count);
    call_.run<ConvertKernel>({waiting_.values.bytes().data + waiting_.count * unit, tensor_.type,
                              sums.values + done * size_of(type), type, n, divisor_});
    waiting_.count += n;
    done += n;
  }
}

void ResultWriter::wait_for_pairs(std::size_t room) {
  waiting_.room = room;
  waiting_.indices = Scratch(call_.host_compute(), room * sizeof(std::uint64_t));
  waiting_.values = Scratch(call_.host_compute(), room * size_of(tensor_.type));
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

// Copies the sums, whose memory the caller reuses at once.
void ResultWriter::put_on_device(Range range, const SparseList& sums, DType type) {
  Waiting& waiting = waiting_;
  const bool goes_on = waiting.range.begin + waiting.range.size == range.begin &&
                       waiting.type == type && waiting.count + sums.count <= waiting.room;
  if (!goes_on) {
    write_waiting();
    waiting.range = {range.begin, 0};
    waiting.type = type;
    waiting.room = std::max(sums.count, std::min(tensor_.count, pairs_at_once));
    waiting.indices = Scratch(call_.host_compute(), waiting.room * sizeof(std::uint32_t));
    waiting.values = Scratch(call_.host_compute(), waiting.room * size_of(type));
  }
  waiting.range.size += range.size;
  if (sums.count == 0) return;
  const std::size_t unit = size_of(type);
  auto* indices = reinterpret_cast<std::uint32_t*>(waiting.indices.bytes().data);
  std::copy_n(sums.indices, sums.count, indices + waiting.count);
  std::memcpy(waiting.values.bytes().data + waiting.count * unit, sums.values, sums.count * unit);
  waiting.count += sums.count;
}

void ResultWriter::write_waiting() {
  if (tensor_.sparse.count) return write_waiting_pairs();
  const Range range = waiting_.range;
  if (range.size == 0) return;
  const Fence written = output().run<ScatterKernel>(
      {tensor_.recv + range.begin * size_of(tensor_.type), tensor_.type,
       static_cast<std::uint32_t>(range.begin), range.size,
       reinterpret_cast<const std::uint32_t*>(waiting_.indices.bytes().data),
       waiting_.values.bytes().data, waiting_.type, waiting_.count, divisor_, true});
  retire_waiting(written);
  waiting_.range = {};
}

void ResultWriter::write_waiting_pairs() {
  if (waiting_.count == 0) return;
  const SparseOutput& out = tensor_.sparse;
  const std::size_t unit = size_of(tensor_.type);
  output().run<CopyKernel>({reinterpret_cast<std::byte*>(out.indices + written_),
                            waiting_.indices.bytes().data, waiting_.count * sizeof(std::uint64_t)});
  const Fence written = output().run<CopyKernel>(
      {out.values + written_ * unit, waiting_.values.bytes().data, waiting_.count * unit});
  written_ += waiting_.count;
  retire_waiting(written);
}

void ResultWriter::retire_waiting(Fence written) {
  output().retire(Lease(), std::exchange(waiting_.indices, Scratch()), written);
  output().retire(Lease(), std::exchange(waiting_.values, Scratch()), written);
  waiting_.room = waiting_.count = 0;
}

void ResultWriter::put_nan() {
  if (!tensor_.sparse.count) {
    output().run<FillNanKernel>({tensor_.recv, tensor_.type, tensor_.count});
    return;
  }
  if (tensor_.sparse.list) return;  // SparseCall::nan tells the caller
  // One pair is enough to be seen, and there may be room for no more.
  const SparseOutput& out = tensor_.sparse;
  count_ = std::min({std::size_t{1}, out.capacity, tensor_.count});
  if (count_ == 0) return;
  std::uint64_t* index = out.indices;
  std::byte* value = out.values;
  if (tensor_.device) {
    wait_for_pairs(1);
    waiting_.count = 1;
    index = reinterpret_cast<std::uint64_t*>(waiting_.indices.bytes().data);
    value = waiting_.values.bytes().data;
  }
  *index = 0;
  call_.run<FillNanKernel>({value, tensor_.type, 1});
}

void ResultWriter::tell_count() const {
  if (!tensor_.sparse.counts_on_device) {
    *tensor_.sparse.count = count_;
    return;
  }
  Scratch word(call_.host_compute(), sizeof count_);
  std::memcpy(word.bytes().data, &count_, sizeof count_);
  const Fence told = output().run<CopyKernel>(
      {reinterpret_cast<std::byte*>(tensor_.sparse.count), word.bytes().data, sizeof count_});
  output().retire(Lease(), std::move(word), told);
}

Error ResultWriter::finish() {
  write_waiting();
  if (!tensor_.sparse.count) return {};
  tell_count();
  if (tensor_.sparse.list) return {};
  if (count_ <= tensor_.sparse.capacity) return {};
  return {Code::invalid_argument,
          fmt::format("pithAllReduceCompressedSparse: capacity is {}, expected at least {}, which "
                      "n tells: the first pairs are "
                      "there, and the call counts",
                      tensor_.sparse.capacity, count_)};
}

}  // namespace pith
