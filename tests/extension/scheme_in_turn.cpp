// In-turn: k elements whose turn it is, so that no index travels; every rank sends its values
// there.
//
// The vector is cut into k parts as equal as they can be, of which each sends its first element in
// the first step, its second one in the next: every element has its turn, and indices rise by
// themselves. Cost: that of value_sum.hpp on k values.
//
// Not part of the library: a scheme as anybody may add it, in this file and the lines that
// src/compress/SCHEMES.md names.
#include "collectives/sparse/common_elements.hpp"
#include "collectives/sparse/take_values.hpp"
#include "compress/scheme_keys.hpp"

namespace pith {

extern const Scheme in_turn_scheme;

namespace {

constexpr auto in_turn_keys = keys::of_election(std::array<Key, 0>{});

// One of `range`, by all that ranks agree on.
std::uint32_t next(const Compressor& compressor, Range range) {
  return static_cast<std::uint32_t>(range.begin + compressor.step % range.size);
}

Task<Error> take(Call& call, const SparseCall& args, std::size_t t, CommonValues& values) {
  const CompressedTensor& tensor = args.tensors[t];
  Compressor& compressor = *tensor.compressor;
  Error error = co_await add_in_turns(call, args, compressor, {0, tensor.count});
  if (error) co_return error;
  PairList& taken = compressor.taken();
  const std::size_t k = elected_of(args.spec().density, tensor.count);
  taken.reserve(k);
  for (std::size_t i = 0; i < k; ++i) {
    const std::size_t begin = tensor.count * i / k;
    taken.indices()[i] = next(compressor, {begin, tensor.count * (i + 1) / k - begin});
  }
  double squares = 0;
  error = co_await take_values(call, args, compressor, k, squares);
  if (error) co_return error;
  values.append(taken.run(0));
  compressor.stats.algorithm = "in_turn";
  co_return error;
}

}  // namespace

Task<Error> allreduce_in_turn(Call& call, SparseCall args) {
  return sum_common_elements(call, args, take);
}

constinit const Scheme in_turn_scheme{.name = "in-turn",
                                      .summary = "elements in turn, whose indices no rank sends",
                                      .electors = Electors::all_alike,
                                      .exchange = "in-turn",
                                      .keys = in_turn_keys,
                                      .density = 0.01};

}  // namespace pith
