// Adaptive thresholds: of the elements above zero and of those below each rank elects its largest,
// k/2 of each, and sends each as the mean of those that it elects of its sign; the residual keeps
// the difference. [Dryden et al., "Communication quantization for data-parallel training of deep
// neural networks", MLHPC 2016, where a part of each sign's elements is elected]
//
//   add, and count magnitudes > move candidates out > elect, return the rest > lists to all ranks
//
// Candidates are what reaches a magnitude that some 2 k elements reach; more if they are too few of
// a sign. The values of a list are its two means: they travel once for each element.
// Cost: topk_direct_cost().
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "collectives/lists/parcels.hpp"
#include "collectives/sparse/take_values.hpp"
#include "collectives/sparse/thresholds/moved_elements.hpp"
#include "collectives/sparse/thresholds/own_lists.hpp"
#include "collectives/sparse/thresholds/taking.hpp"
#include "compress/thresholds/magnitude_tail.hpp"
#include "compress/thresholds/sign_election.hpp"
#include "core/clock.hpp"
#include "core/kernel_args.hpp"

namespace pith {

namespace {

// Which elements are candidates: all from a magnitude on, where a bin of the histogram begins, so
// that their number is known.
struct Candidates {
  float from = 0;
  std::size_t most = 0;

  bool are_all() const { return !(from > 0); }
};

Candidates candidates_of(const MagnitudeHistogram& histogram, double count) {
  const float from = begin_of_bin(threshold_for(histogram, count));
  return {from, static_cast<std::size_t>(tail_of(histogram, from).count)};
}

// Moves them out of the accumulator, which has the gradient.
Task<Error> move_out(Call& call, const SparseCall& args, Compressor& compressor,
                     const Candidates& candidates, MovedElements& moved) {
  const VectorQueue queue = args.queue(call);
  const Answer<PassResult> found(queue);
  // Zeros are no candidates.
  const float threshold = std::max(candidates.from, std::numeric_limits<float>::denorm_min());
  for (Range left{0, compressor.count()}; left.size > 0;) {
    const Stopwatch watch(compressor.stats.select_seconds);
    const Range part = take_front(left, elements_at_once(args));
    const AccumulateKernel::Args pass{.accumulator = compressor.accumulator() + part.begin,
                                      .gradient = nullptr,
                                      .type = DType::f32,
                                      .count = part.size,
                                      .fresh = false,
                                      .result = &*found};
    co_await queue.until(queue.run<SelectKernel>(
        {pass, threshold, static_cast<std::uint32_t>(part.begin), moved.indices() + moved.count,
         moved.values() + moved.count, candidates.most - moved.count}));
    moved.count += found->selected;
    co_await call.turn();
  }
  co_return Error();
}

// As it travels.
float rounded_mean(Call& call, double mean, DType type) {
  const auto in = static_cast<float>(mean);
  float lost = 0;
  std::uint32_t code = 0;
  constexpr std::uint32_t index = 0;
  auto* const out = reinterpret_cast<std::byte*>(&code);
  call.run<RoundKernel>({&lost, &index, &in, 1, out, type});
  float back = 0;
  call.run<ConvertKernel>({reinterpret_cast<std::byte*>(&back), DType::f32, out, type, 1, 1});
  return back;
}

// Candidates on the host, in memory that the queue reaches.
struct HostCopy {
  HostCopy(const VectorQueue& queue, std::size_t size)
      : count(size), memory(queue.host(), 2 * bytes_for(size)) {}
  static std::size_t bytes_for(std::size_t size) {
    return std::max<std::size_t>(size, 1) * sizeof(float);
  }
  std::span<float> values() const { return {reinterpret_cast<float*>(memory.bytes().data), count}; }
  std::uint32_t* indices() const {
    return reinterpret_cast<std::uint32_t*>(memory.bytes().data + bytes_for(count));
  }

  std::size_t count;
  Scratch memory;
};

Fence copy_out(const VectorQueue& queue, const MovedElements& moved, const HostCopy& copy) {
  if (copy.count == 0) return {};
  const std::size_t bytes = copy.count * sizeof(float);
  queue.run<CopyKernel>({reinterpret_cast<std::byte*>(copy.indices()),
                         reinterpret_cast<const std::byte*>(moved.indices()), bytes});
  return queue.run<CopyKernel>({reinterpret_cast<std::byte*>(copy.values().data()),
                                reinterpret_cast<const std::byte*>(moved.values()), bytes});
}

// What is elected becomes a run of taken(), each as its mean, which leaves its value. `means`: room
// for as many.
void take_means(Call& call, PairList& taken, const HostCopy& copy, SignElection& election,
                std::span<float> means) {
  const DType type = taken.type();
  const float above = rounded_mean(call, election.above().mean(), type);
  const float below = rounded_mean(call, election.below().mean(), type);
  std::uint32_t* const indices = taken.indices(taken.count());
  std::size_t n = 0;
  for (std::size_t i = 0; i < copy.count; ++i) {
    float& value = copy.values()[i];
    if (!election.elects(value)) continue;
    const float mean = value > 0 ? above : below;
    value -= mean;
    indices[n] = copy.indices()[i];
    means[n++] = mean;
  }
  const auto* from = reinterpret_cast<const std::byte*>(means.data());
  call.run<ConvertKernel>({taken.values(taken.count()), type, from, DType::f32, n, 1});
  taken.end_run(n);
}

// Takes what is elected of the candidates; the others, and what means leave, return. Without enough
// of a sign nothing changes, unless there are no more.
Task<Error> elect_from(Call& call, const SparseCall& args, Compressor& compressor,
                       MovedElements& moved, bool are_all, bool& is_done) {
  const Stopwatch watch(compressor.stats.select_seconds);
  const VectorQueue queue = args.queue(call);
  const HostCopy copy(queue, moved.count);
  co_await queue.until(copy_out(queue, moved, copy));
  const Scratch room(call.host_compute(), HostCopy::bytes_for(copy.count));
  const std::size_t k = elected_of(args.spec().density, compressor.count());
  SignElection election(copy.values(), (k + 1) / 2,
                        {reinterpret_cast<std::uint32_t*>(room.bytes().data), copy.count});
  is_done = are_all || election.is_full();
  if (!is_done) co_return Error();
  compressor.stats.threshold = election.least();
  compressor.taken().reserve(election.count());
  take_means(call, compressor.taken(), copy, election,
             {reinterpret_cast<float*>(room.bytes().data), copy.count});
  moved.count = 0;
  if (copy.count == 0) co_return Error();
  const Fence returned =
      queue.run<ReturnKernel>({compressor.accumulator(), moved.indices(), copy.memory.bytes().data,
                               copy.count, DType::f32});
  co_await queue.until(returned);
  co_return Error();
}

Task<Error> elect_adaptively(Call& call, const SparseCall& args, std::size_t t) {
  const CompressedTensor& tensor = args.tensors[t];
  Compressor& compressor = *tensor.compressor;
  const HistogramRoom histogram(call);
  Error error = co_await add_and_count(call, args, tensor, *histogram);
  double expected = 2 * double(elected_of(args.spec().density, tensor.count));
  for (bool is_done = false; !error && !is_done; expected *= 4) {
    const Candidates candidates = candidates_of(*histogram, expected);
    MovedElements moved(args.queue(call), compressor.accumulator(), candidates.most);
    error = co_await move_out(call, args, compressor, candidates, moved);
    if (error) co_return error;
    error = co_await elect_from(call, args, compressor, moved, candidates.are_all(), is_done);
  }
  co_return error;
}

}  // namespace

Task<Error> allreduce_adaptive(Call& call, SparseCall args) {
  return sum_own_lists(call, args, elect_adaptively);
}

}  // namespace pith
