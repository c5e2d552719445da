#include "collectives/lists/sparse_sum.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/lists/list_adder.hpp"
#include "collectives/lists/list_message.hpp"
#include "collectives/lists/split_sum.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

struct Doubling {
  SparseSum args;
  std::size_t elements = 0;
  std::uint32_t step = 0;
  bool odd = false;

  static constexpr std::size_t came = 0;  // the received list in ListVector::memory

  ListAddress name(int peer) const { return {peer, args.lane, step}; }
  ListParts parts() const { return {{0, elements}, args.message_elements}; }
  void take_over() {
    for (ListVector& vector : args.vectors) vector.list = all_of(vector.memory[came]);
  }
  // Adds the received lists to the sums so far. The two memories for sums take turns.
  void add(Call& call, bool came_first) {
    ListAdder adder(call, 2, elements);
    for (ListVector& vector : args.vectors) {
      if (vector.count == 0) continue;
      std::array<SparseList, 2> both{vector.list, all_of(vector.memory[came])};
      if (came_first) std::swap(both[0], both[1]);
      PairList& sum = vector.memory[odd ? 1 : 2];
      add_lists(adder, both, DType::f32, {0, vector.count}, sum);
      vector.list = sum.run(0);
    }
    odd = !odd;
  }
};

Task<Error> give(Call& call, Doubling& doubling, int to, Traffic& traffic) {
  return send_slices(call, doubling.name(to), doubling.args.vectors, doubling.parts(), DType::f32,
                     *doubling.args.flags, traffic);
}

Task<Error> get(Call& call, Doubling& doubling, int from, Traffic& traffic) {
  const ListTargets targets{doubling.args.vectors, Doubling::came, DType::f32};
  return receive_slices(call, doubling.name(from), doubling.parts(), targets, *doubling.args.flags,
                        traffic);
}

// Exchanges lists with `peer`; afterwards both ranks have their sum.
Task<Error> merge_with(Call& call, Doubling& doubling, int peer, Traffic& traffic) {
  std::array<Task<Error>, 2> strands{strand(call, give(call, doubling, peer, traffic)),
                                     strand(call, get(call, doubling, peer, traffic))};
  Error error = co_await when_all(strands);
  if (!error) doubling.add(call, peer < call.rank());
  co_return error;
}

}  // namespace

Task<Error> sparse_sum_doubling(Call& call, SparseSum args, Traffic& traffic) {
  constexpr std::uint32_t last_step = 63;
  Doubling doubling{args, line_up(args.vectors)};
  const int p = call.size();
  const int core = floor_power_of_two(p);
  const int rank = call.rank();
  Error error;
  if (rank >= core) {
    error = co_await give(call, doubling, rank - core, traffic);
    doubling.step = last_step;
    if (!error) error = co_await get(call, doubling, rank - core, traffic);
    if (!error) doubling.take_over();
    co_return error;
  }
  if (rank + core < p) {
    error = co_await get(call, doubling, rank + core, traffic);
    if (error) co_return error;
    doubling.add(call, false);
  }
  for (int bit = 1; bit < core; bit *= 2) {
    ++doubling.step;
    error = co_await merge_with(call, doubling, rank ^ bit, traffic);
    if (error) co_return error;
  }
  doubling.step = last_step;
  if (rank + core < p) error = co_await give(call, doubling, rank + core, traffic);
  co_return error;
}

Task<Error> sparse_sum_split(Call& call, SparseSum args, Traffic& traffic) {
  SplitSum split(call, args);
  Error error = co_await add_shares(call, split, traffic);
  // In float32, since no residual would keep what rounding the sums loses.
  if (!error) error = co_await tell_sums(call, split, DType::f32, traffic);
  co_return error;
}

}  // namespace pith
