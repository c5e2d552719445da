#include "kernels/host_compute.hpp"

#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <new>

#include "core/kernel_args.hpp"
#include "kernels/coded_values.hpp"
#include "kernels/elections/elections.hpp"
#include "kernels/low_rank/factors.hpp"
#include "kernels/reduce.hpp"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "kernels/varying/varying.hpp"

namespace pith {

namespace {

constexpr std::size_t smallest_bytes = 256;
constexpr std::size_t huge_bytes = std::size_t{2} << 20;
constexpr std::size_t line_bytes = 64;
constexpr std::size_t page_bytes = 4096;

kernels::Stores stores(bool streaming) {
  return streaming ? kernels::Stores::streaming : kernels::Stores::cached;
}

void run_reduce(const ReduceKernel::Args& a) {
  kernels::reduce(a.out, a.a, a.b, a.count, a.type, a.op, stores(a.streaming));
}

void run_reduce_many(const ReduceManyKernel::Args& a) {
  if (a.inputs == 2 && a.outputs == 2 && a.divisor == 0) {
    return kernels::reduce_to_two(a.out[0], a.out[1], a.in[0], a.in[1], a.count, a.type, a.op,
                                  stores(a.streaming));
  }
  kernels::reduce_many(a.out[0], a.in.data(), static_cast<int>(a.inputs), a.count, a.type, a.op);
  if (a.divisor != 0) kernels::finish_avg(a.out[0], a.count, a.type, a.divisor);
  for (std::size_t o = 1; o < a.outputs; ++o) {
    kernels::copy(a.out[o], a.out[0], a.count * size_of(a.type));
  }
}

void run_finish_avg(const FinishAvgKernel::Args& a) {
  kernels::finish_avg(a.data, a.count, a.type, a.divisor);
}

void run_scale(const ScaleKernel::Args& a) {
  const auto* bits = reinterpret_cast<const std::byte*>(&a.bits);
  kernels::scale(a.out, a.in, a.where ? a.where : bits, a.count, a.type);
}

void run_copy(const CopyKernel::Args& a) {
  kernels::copy(a.out, a.in, a.bytes, stores(a.streaming));
}

std::size_t class_of(std::size_t bytes) {
  return static_cast<std::size_t>(
      std::bit_width((bytes < smallest_bytes ? smallest_bytes : bytes) - 1));
}

std::align_val_t alignment_of(std::size_t bytes) {
  return std::align_val_t{bytes >= huge_bytes ? huge_bytes : line_bytes};
}

void populate(std::byte* memory, std::size_t bytes) {
  madvise(memory, bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  for (std::size_t at = 0; at < bytes; at += page_bytes) {
    static_cast<volatile std::byte*>(memory)[at] = std::byte{0};
  }
}

}  // namespace

HostCompute::HostCompute() {
  set<ReduceKernel, run_reduce>();
  set<ReduceManyKernel, run_reduce_many>();
  set<FinishAvgKernel, run_finish_avg>();
  set<ScaleKernel, run_scale>();
  set<CopyKernel, run_copy>();
  set<AccumulateKernel, kernels::accumulate>();
  set<SelectKernel, kernels::select>();
  set<SampleKernel, kernels::scalar::sample>();
  set<HistogramKernel, kernels::histogram>();
  set<MomentumKernel, kernels::correct_momentum>();
  set<DrawKernel, kernels::draw>();
  set<KeepLargestKernel, kernels::keep_largest>();
  set<TakeKernel, kernels::take>();
  set<RoundKernel, kernels::round_values>();
  set<ReturnKernel, kernels::give_back>();
  set<SumValuesKernel, kernels::sum_values>();
  set<SumListsKernel, kernels::sum_lists>();
  set<ScatterKernel, kernels::scatter>();
  set<EncodeIndicesKernel, kernels::encode_indices>();
  set<DecodeIndicesKernel, kernels::decode_indices>();
  set<EncodeValuesKernel, kernels::encode_values>();
  set<DecodeValuesKernel, kernels::decode_values>();
  set<SumCodedKernel, kernels::sum_coded>();
  set<EncodeVaryingKernel, kernels::encode_varying>();
  set<DecodeVaryingKernel, kernels::decode_varying>();
  set<ProjectKernel, kernels::project>();
  set<BackProjectKernel, kernels::back_project>();
  set<AddProductKernel, kernels::add_product>();
  set<PutProductKernel, kernels::put_product>();
  set<SplitKernel, kernels::split>();
  set<SquaresKernel, kernels::squares>();
  set<ConvertKernel, kernels::convert>();
  set<ZeroKernel, kernels::scalar::zero>();
  set<FillNanKernel, kernels::scalar::fill_nan>();
}

HostCompute::~HostCompute() {
  for (std::size_t size_class = 0; size_class < free_.size(); ++size_class) {
    for (std::byte* scratch : free_[size_class]) {
      ::operator delete(scratch, alignment_of(std::size_t{1} << size_class));
    }
  }
}

std::byte* HostCompute::take_scratch(std::size_t bytes) {
  const std::size_t size_class = class_of(bytes);
  auto& list = free_[size_class];
  if (!list.empty()) {
    std::byte* scratch = list.back();
    list.pop_back();
    return scratch;
  }
  list.reserve(++made_[size_class]);  // so that give_scratch never allocates
  const std::size_t room = std::size_t{1} << size_class;
  auto* scratch = static_cast<std::byte*>(::operator new(room, alignment_of(room)));
  if (room >= huge_bytes) populate(scratch, room);
  return scratch;
}

void HostCompute::give_scratch(std::byte* scratch, std::size_t bytes) {
  free_[class_of(bytes)].push_back(scratch);
}

Fence HostCompute::submit(Implementation implementation, const void* args, std::size_t, std::size_t,
                          Fence) {
  implementation(args);
  return {};
}

}  // namespace pith
