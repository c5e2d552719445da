#include "collectives/lists/split_sum.hpp"

#include <algorithm>
#include <array>

#include "collectives/lists/list_adder.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

Task<Error> send_shares(Call& call, const SplitSum& split, Traffic& traffic) {
  const SparseSum& args = split.args;
  for (int d = 1; d < call.size(); ++d) {
    const int to = wrap(call.rank() + d, call.size());
    Error error = co_await send_slices(call, {to, args.lane, 0}, args.vectors, split.parts(to),
                                       args.type, *args.flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> receive_shares(Call& call, const SplitSum& split, Traffic& traffic) {
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

void add_share(Call& call, SplitSum& split) {
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
    add_lists(adder, lists, split.args.type, range, split.sums(vector));
    vector.list = split.sums(vector).run(0);
  });
}

Task<Error> receive_sums(Call& call, const SplitSum& split, DType type, Traffic& traffic) {
  const SparseSum& args = split.args;
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    const ListTargets targets{args.vectors, static_cast<std::size_t>(from), type};
    Error error = co_await receive_slices(call, {from, args.lane, 1}, split.parts(from), targets,
                                          *args.flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> send_sums(Call& call, const SplitSum& split, DType type, Traffic& traffic) {
  const SparseSum& args = split.args;
  return send_slices(call, {every_other, args.lane, 1}, args.vectors, split.parts(call.rank()),
                     type, *args.flags, traffic);
}

// Concatenates `sums`: those of all shares that the vector has elements in.
void join(Call& call, ListVector& vector, DType type, std::span<PairList> sums) {
  if (sums.size() == 1) {
    vector.list = all_of(sums[0]);
    return;
  }
  std::size_t room = 0;
  for (const PairList& sum : sums) room += sum.count();
  PairList& all = vector.memory[static_cast<std::size_t>(call.size())];
  all.begin(type);
  all.reserve(room);
  std::size_t at = 0;
  for (PairList& sum : sums) {
    if (sum.count() == 0) continue;
    std::copy_n(sum.indices(), sum.count(), all.indices(at));
    call.run<CopyKernel>({all.values(at), sum.values(), sum.count() * size_of(type)});
    at += sum.count();
  }
  all.end_run(room);
  vector.list = all.run(0);
}

// Consecutive shares have the elements of a vector.
void join_all(Call& call, SplitSum& split, DType type) {
  int first = 0;
  for (ListVector& vector : split.args.vectors) {
    if (vector.count == 0) continue;
    while (split.shares[first].begin + split.shares[first].size <= vector.begin) ++first;
    int last = first;
    while (last < split.ranks && split.shares[last].begin < vector.begin + vector.count) ++last;
    join(call, vector, type,
         vector.memory.subspan(static_cast<std::size_t>(first),
                               static_cast<std::size_t>(last - first)));
  }
}

}  // namespace

Task<Error> add_shares(Call& call, SplitSum& split, Traffic& traffic) {
  std::array<Task<Error>, 2> strands{strand(call, send_shares(call, split, traffic)),
                                     strand(call, receive_shares(call, split, traffic))};
  Error error = co_await when_all(strands);
  if (!error) add_share(call, split);
  co_return error;
}

Task<Error> tell_sums(Call& call, SplitSum& split, DType type, Traffic& traffic) {
  std::array<Task<Error>, 2> strands{strand(call, send_sums(call, split, type, traffic)),
                                     strand(call, receive_sums(call, split, type, traffic))};
  Error error = co_await when_all(strands);
  if (!error) join_all(call, split, type);
  co_return error;
}

}  // namespace pith
