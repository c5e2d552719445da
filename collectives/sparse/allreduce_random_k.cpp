// Random-k: k elements drawn by what all ranks know, so that no index travels; every rank sends its
// values there. [Wangni et al., "Gradient sparsification", NeurIPS 2018; Stich et al., "Sparsified
// SGD with memory", NeurIPS 2018]
//
// The vector is cut into k parts as equal as they can be, and of each one element is drawn: every
// element has about the chance that the density says, and indices rise by themselves. With feedback
// what is not drawn waits for its turn.
//
//   add gradients, draw, take values while they are in the cache > sum values of all tensors
//
// Cost: that of value_sum.hpp on k values.
#include "collectives/sparse/common_elements.hpp"
#include "collectives/sparse/take_values.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

// The k parts of a vector.
class Draw {
 public:
  Draw(const Compressor& compressor, std::size_t tensor, std::size_t count)
      : count_(count),
        k_(elected_of(compressor.spec().density, count)),
        key_(mix(mix(mix(0, compressor.spec().seed), compressor.step), tensor)) {}

  std::size_t k() const { return k_; }
  // Where part i begins.
  std::size_t begin(std::size_t i) const { return count_ * i / k_; }
  std::uint32_t element(std::size_t i) const {
    const std::size_t size = begin(i + 1) - begin(i);
    return static_cast<std::uint32_t>(begin(i) + (mix(key_, i) >> 32) * size / (1ull << 32));
  }

 private:
  std::size_t count_;
  std::size_t k_;
  std::uint64_t key_;
};

// So many parts that their elements stay in the cache; on a device all.
std::size_t parts_at_once(const SparseCall& args, std::size_t count, std::size_t k) {
  constexpr std::size_t in_cache = std::size_t{1} << 15;
  return args.device ? k : std::max<std::size_t>(in_cache * k / count, 1);
}

Task<Error> take(Call& call, const SparseCall& args, std::size_t t, CommonValues& values) {
  const CompressedTensor& tensor = args.tensors[t];
  Compressor& compressor = *tensor.compressor;
  const Draw draw(compressor, t, tensor.count);
  PairList& taken = compressor.taken();
  for (Range left{0, draw.k()}; left.size > 0;) {
    const Range parts = take_front(left, parts_at_once(args, tensor.count, draw.k()));
    const std::size_t begin = draw.begin(parts.begin);
    const std::size_t end = draw.begin(parts.begin + parts.size);
    Error error = co_await add_in_turns(call, args, compressor, {begin, end - begin});
    if (error) co_return error;
    taken.reserve(parts.size);
    std::uint32_t* const indices = taken.indices(taken.count());
    for (std::size_t i = 0; i < parts.size; ++i) indices[i] = draw.element(parts.begin + i);
    double squares = 0;
    error = co_await take_values(call, args, compressor, parts.size, squares);
    if (error) co_return error;
  }
  values.append({taken.indices(), taken.values(), taken.count()});
  co_return Error();
}

}  // namespace

Task<Error> allreduce_random_k(Call& call, SparseCall args) {
  return sum_common_elements(call, args, take);
}

}  // namespace pith
