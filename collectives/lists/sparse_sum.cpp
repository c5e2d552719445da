#include "collectives/lists/sparse_sum.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/lists/list_adder.hpp"
#include "collectives/lists/list_message.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

// Adds up all lists in a range, in this order and in float32. `sum` becomes one run.
void add_lists(ListAdder& adder, std::span<const SparseList> lists, DType type, Range range,
               PairList& sum) {
  std::size_t total = 0;
  for (const SparseList& list : lists) total += list.count;
  sum.begin(DType::f32);
  sum.reserve(total);
  std::size_t count = 0;
  for (std::size_t k = 0; k < chunks_in(range.size, ListAdder::block); ++k) {
    count += adder.add(lists, type, chunk_of(range, ListAdder::block, k), sum.indices(count),
                       sum.values(count));
  }
  sum.end_run(count);
}

// All pairs of a list, which may have arrived in several messages.
SparseList all_of(PairList& list) { return {list.indices(), list.values(), list.count()}; }

constexpr int every_other = -1;

// Sends the pairs of all vectors in the range of `parts`.
Task<Error> send_slices(Call& call, ListAddress to, std::span<const ListVector> vectors,
                        ListParts parts, DType type, std::uint32_t flags, Traffic& traffic) {
  const bool to_all = to.peer == every_other;
  const auto times = static_cast<std::uint64_t>(to_all ? call.size() - 1 : 1);
  for (std::size_t k = 0; k < parts.count(); ++k) {
    const ListMessage message = write_slices(call, vectors, parts[k], type, flags);
    traffic.sent += times * message.bytes();
    Task<Error> sending =
        to_all ? send_lists_to_all(call, to, message) : send_lists(call, to, message);
    Error error = co_await std::move(sending);
    if (error) co_return error;
  }
  co_return Error();
}

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

namespace {

struct Splitting {
  Splitting(Call& call, const SparseSum& sum)
      : args(sum),
        shares(line_up(sum.vectors), call.size()),
        ranks(call.size()),
        own(static_cast<std::size_t>(call.rank())) {}

  // ListVector::memory has a list for every rank: first that rank's pairs of this rank's share,
  // later the sums of that rank's share. This rank's entry is the sum of its own share, since its
  // pairs stay in `list`. One more list, the last, is the sum of all shares.
  SparseSum args;
  Blocks shares;
  int ranks;
  std::size_t own;

  ListParts parts(int rank) const { return {shares[rank], args.message_elements}; }
};

Task<Error> send_shares(Call& call, const Splitting& split, Traffic& traffic) {
  const SparseSum& args = split.args;
  for (int d = 1; d < call.size(); ++d) {
    const int to = wrap(call.rank() + d, call.size());
    Error error = co_await send_slices(call, {to, args.lane, 0}, args.vectors, split.parts(to),
                                       args.type, *args.flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> receive_shares(Call& call, const Splitting& split, Traffic& traffic) {
  const SparseSum& args = split.args;
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    const ListTargets targets{args.vectors, static_cast<std::size_t>(from), args.type};
    Error error = co_await receive_slices(call, {from, args.lane, 0}, split.parts(call.rank()),
                                          targets, *args.flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

// Adds up this rank's share in rank order. In float32, since no residual would keep what rounding
// the sums loses.
void add_share(Call& call, Splitting& split) {
  const auto p = static_cast<std::size_t>(split.ranks);
  const Range share = split.shares[call.rank()];
  const Scratch memory(call.host_compute(), p * sizeof(SparseList));
  const std::span<SparseList> lists{reinterpret_cast<SparseList*>(memory.bytes().data), p};
  ListAdder adder(call, p, share.size);
  for_each_slice(split.args.vectors, share, [&](ListVector& vector, Range range) {
    for (std::size_t r = 0; r < p; ++r) {
      lists[r] = r == split.own ? part_of(vector.list, split.args.type, range.begin, range.size)
                                : all_of(vector.memory[r]);
    }
    PairList& sum = vector.memory[split.own];
    add_lists(adder, lists, split.args.type, range, sum);
    vector.list = sum.run(0);  // the share's sums, which are sent next
  });
}

Task<Error> receive_sums(Call& call, const Splitting& split, Traffic& traffic) {
  const SparseSum& args = split.args;
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    const ListTargets targets{args.vectors, static_cast<std::size_t>(from), DType::f32};
    Error error = co_await receive_slices(call, {from, args.lane, 1}, split.parts(from), targets,
                                          *args.flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> send_sums(Call& call, const Splitting& split, Traffic& traffic) {
  const SparseSum& args = split.args;
  return send_slices(call, {every_other, args.lane, 1}, args.vectors, split.parts(call.rank()),
                     DType::f32, *args.flags, traffic);
}

// Concatenates `sums`: those of all shares that the vector has elements in.
void join(Call& call, ListVector& vector, std::span<PairList> sums) {
  if (sums.size() == 1) {
    vector.list = all_of(sums[0]);
    return;
  }
  std::size_t room = 0;
  for (const PairList& sum : sums) room += sum.count();
  PairList& all = vector.memory.back();
  all.begin(DType::f32);
  all.reserve(room);
  std::size_t at = 0;
  for (PairList& sum : sums) {
    if (sum.count() == 0) continue;
    std::copy_n(sum.indices(), sum.count(), all.indices(at));
    call.run<CopyKernel>({all.values(at), sum.values(), sum.count() * sizeof(float)});
    at += sum.count();
  }
  all.end_run(room);
  vector.list = all.run(0);
}

// Consecutive shares have the elements of a vector.
void join_all(Call& call, Splitting& split) {
  int first = 0;
  for (ListVector& vector : split.args.vectors) {
    if (vector.count == 0) continue;
    while (split.shares[first].begin + split.shares[first].size <= vector.begin) ++first;
    int last = first;
    while (last < split.ranks && split.shares[last].begin < vector.begin + vector.count) ++last;
    join(call, vector,
         vector.memory.subspan(static_cast<std::size_t>(first),
                               static_cast<std::size_t>(last - first)));
  }
}

}  // namespace

Task<Error> sparse_sum_split(Call& call, SparseSum args, Traffic& traffic) {
  Splitting split(call, args);
  std::array<Task<Error>, 2> shares{strand(call, send_shares(call, split, traffic)),
                                    strand(call, receive_shares(call, split, traffic))};
  Error error = co_await when_all(shares);
  if (error) co_return error;
  add_share(call, split);
  std::array<Task<Error>, 2> sums{strand(call, send_sums(call, split, traffic)),
                                  strand(call, receive_sums(call, split, traffic))};
  error = co_await when_all(sums);
  if (!error) join_all(call, split);
  co_return error;
}

}  // namespace pith
