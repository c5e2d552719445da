#include "collectives/sparse_sum.hpp"

#include <array>

#include "collectives/list_message.hpp"

namespace pith {

namespace {

constexpr std::size_t block = EncodeIndicesKernel::block_elements;

// Adds up lists within one range, block by block so that the sums stay in the cache. What comes out
// is appended to a list in float32; end_run() is the caller's.
class ListAdder {
 public:
  explicit ListAdder(Call& call)
      : call_(call),
        sums_(call.compute(), block * sizeof(float)),
        touched_(call.compute(), block / 8) {
    call.run<ZeroKernel>({sums_.bytes().data, sums_.bytes().size});
    call.run<ZeroKernel>({touched_.bytes().data, touched_.bytes().size});
  }

  // Returns how many pairs there are. `into` has room for them behind its runs.
  std::size_t add(std::span<const SparseList> lists, DType type, Range range, PairList& into) {
    const Scratch parts(call_.host_compute(), lists.size() * sizeof(SparseList));
    auto* in_block = reinterpret_cast<SparseList*>(parts.bytes().data);
    std::size_t total = 0;
    for (std::size_t k = 0; k < chunks_in(range.size, block); ++k) {
      const Range piece = chunk_of(range, block, k);
      for (std::size_t i = 0; i < lists.size(); ++i) {
        in_block[i] = part_of(lists[i], type, piece.begin, piece.size);
      }
      std::size_t count = 0;
      call_.run<SumListsKernel>(
          {in_block, lists.size(), type, static_cast<std::uint32_t>(piece.begin), piece.size,
           reinterpret_cast<float*>(sums_.bytes().data),
           reinterpret_cast<std::uint64_t*>(touched_.bytes().data),
           into.indices(into.count() + total),
           reinterpret_cast<float*>(into.values(into.count() + total)), &count});
      total += count;
    }
    return total;
  }

 private:
  Call& call_;
  Scratch sums_;
  Scratch touched_;
};

}  // namespace

void add_lists(Call& call, std::span<const SparseList> lists, DType type, Range range,
               PairList& sum) {
  std::size_t total = 0;
  for (const SparseList& list : lists) total += list.count;
  sum.begin(DType::f32);
  sum.reserve(total);
  ListAdder adder(call);
  sum.end_run(adder.add(lists, type, range, sum));
}

namespace {

struct Doubling {
  SparseSum args;
  PairList lists[2];  // what we have, and what came
  std::uint32_t step;

  // Steps of different vectors must not meet.
  ListAddress name(int peer) const { return {peer, args.lane, step}; }
};

Task<Error> give(Call& call, Doubling& doubling, int to, Traffic& traffic) {
  const PairList& own = doubling.lists[0];
  const ListMessage message =
      write_list(call, own.run(0), {0, doubling.args.count}, DType::f32, *doubling.args.flags);
  traffic.sent += message.head_bytes + message.values_bytes;
  co_return co_await send_lists(call, doubling.name(to), message);
}

Task<Error> get(Call& call, Doubling& doubling, int from, PairList& into, Traffic& traffic) {
  into.begin(DType::f32);
  co_return co_await receive_list(call, doubling.name(from), {0, doubling.args.count}, into,
                                  *doubling.args.flags, traffic);
}

// Both have the sum of their lists afterwards.
Task<Error> merge_with(Call& call, Doubling& doubling, int peer, Traffic& traffic) {
  std::array<Task<Error>, 2> strands{give(call, doubling, peer, traffic),
                                     get(call, doubling, peer, doubling.lists[1], traffic)};
  Error error = co_await when_all(strands);
  if (error) co_return error;
  PairList& own = doubling.lists[0];
  const bool lower = call.rank() < peer;
  const std::array<SparseList, 2> both{(lower ? own : doubling.lists[1]).run(0),
                                       (lower ? doubling.lists[1] : own).run(0)};
  PairList sum;
  add_lists(call, both, DType::f32, {0, doubling.args.count}, sum);
  own = std::move(sum);
  co_return Error();
}

}  // namespace

Task<Error> sparse_sum_doubling(Call& call, SparseSum args, Traffic& traffic) {
  Doubling doubling{args, {}, args.step * 64};
  PairList& own = doubling.lists[0];
  own.begin(DType::f32);
  own.reserve(args.own.count);
  std::copy_n(args.own.indices, args.own.count, own.indices());
  call.run<CopyKernel>({own.values(), args.own.values, args.own.count * sizeof(float)});
  own.end_run(args.own.count);

  const int p = call.size();
  const int core = floor_power_of_two(p);
  const int rank = call.rank();
  Error error;
  if (rank >= core) {
    error = co_await give(call, doubling, rank - core, traffic);
    doubling.step += 63;
    if (!error) error = co_await get(call, doubling, rank - core, *args.sum, traffic);
    co_return error;
  }
  if (rank + core < p) {
    error = co_await get(call, doubling, rank + core, doubling.lists[1], traffic);
    if (error) co_return error;
    const std::array<SparseList, 2> both{own.run(0), doubling.lists[1].run(0)};
    PairList sum;
    add_lists(call, both, DType::f32, {0, args.count}, sum);
    own = std::move(sum);
  }
  for (int bit = 1; bit < core; bit *= 2) {
    ++doubling.step;
    error = co_await merge_with(call, doubling, rank ^ bit, traffic);
    if (error) co_return error;
  }
  doubling.step = args.step * 64 + 63;
  if (rank + core < p) error = co_await give(call, doubling, rank + core, traffic);
  *args.sum = std::move(own);
  co_return error;
}

namespace {

// All lists of one share of the indices, by rank; the own one is a part of the rank's list.
struct Share {
  Range range;
  std::span<PairList> came;
};

Task<Error> send_shares(Call& call, const SparseSum& args, Traffic& traffic) {
  const Blocks shares(args.count, call.size());
  for (int d = 1; d < call.size(); ++d) {
    const int to = wrap(call.rank() + d, call.size());
    const Range range = shares[to];
    if (range.size == 0) continue;
    const SparseList list = part_of(args.own, args.type, range.begin, range.size);
    const ListMessage message = write_list(call, list, range, args.type, *args.flags);
    traffic.sent += message.head_bytes + message.values_bytes;
    Error error = co_await send_lists(call, {to, args.lane, 2 * args.step}, message);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> receive_shares(Call& call, const SparseSum& args, Share& share, Traffic& traffic) {
  for (int d = 1; d < call.size() && share.range.size > 0; ++d) {
    const int from = wrap(call.rank() - d, call.size());
    PairList& list = share.came[static_cast<std::size_t>(from)];
    list.begin(args.type);
    Error error = co_await receive_list(call, {from, args.lane, 2 * args.step}, share.range, list,
                                        *args.flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

// In rank order. In float32, for nobody's residual would keep what a rounding of it lost.
void add_share(Call& call, const SparseSum& args, Share& share, PairList& sum) {
  const auto p = static_cast<std::size_t>(call.size());
  const auto own = static_cast<std::size_t>(call.rank());
  const Scratch memory(call.host_compute(), p * sizeof(SparseList));
  auto* lists = reinterpret_cast<SparseList*>(memory.bytes().data);
  for (std::size_t r = 0; r < p; ++r) {
    const bool is_own = r == own || share.range.size == 0;
    lists[r] = is_own ? part_of(args.own, args.type, share.range.begin, share.range.size)
                      : share.came[r].run(0);
  }
  add_lists(call, {lists, p}, args.type, share.range, sum);
}

Task<Error> receive_sums(Call& call, const SparseSum& args, std::span<PairList> sums,
                         Traffic& traffic) {
  const Blocks shares(args.count, call.size());
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    PairList& list = sums[static_cast<std::size_t>(from)];
    list.begin(DType::f32);
    if (shares[from].size == 0) {
      list.end_run(0);
      continue;
    }
    Error error = co_await receive_list(call, {from, args.lane, 2 * args.step + 1}, shares[from],
                                        list, *args.flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> send_sum(Call& call, const SparseSum& args, const PairList& sum, Range range,
                     Traffic& traffic) {
  if (range.size == 0) co_return Error();
  const ListMessage message = write_list(call, sum.run(0), range, DType::f32, *args.flags);
  traffic.sent +=
      static_cast<std::uint64_t>(call.size() - 1) * (message.head_bytes + message.values_bytes);
  co_return co_await send_lists_to_all(call, {0, args.lane, 2 * args.step + 1}, message);
}

}  // namespace

Task<Error> sparse_sum_split(Call& call, SparseSum args, Traffic& traffic) {
  const auto p = static_cast<std::size_t>(call.size());
  std::vector<PairList> came(p);
  std::vector<PairList> sums(p);
  Share share{Blocks(args.count, call.size())[call.rank()], came};
  std::array<Task<Error>, 2> split{send_shares(call, args, traffic),
                                   receive_shares(call, args, share, traffic)};
  Error error = co_await when_all(split);
  if (error) co_return error;
  PairList& own = sums[static_cast<std::size_t>(call.rank())];
  add_share(call, args, share, own);
  std::array<Task<Error>, 2> gather{send_sum(call, args, own, share.range, traffic),
                                    receive_sums(call, args, sums, traffic)};
  error = co_await when_all(gather);
  if (error) co_return error;
  args.sum->begin(DType::f32);
  std::size_t all = 0;
  for (const PairList& list : sums) all += list.count();
  args.sum->reserve(all);
  std::size_t at = 0;
  for (PairList& list : sums) {
    std::copy_n(list.indices(), list.count(), args.sum->indices(at));
    call.run<CopyKernel>({args.sum->values(at), list.values(), list.count() * sizeof(float)});
    at += list.count();
  }
  args.sum->end_run(all);
  co_return error;
}

}  // namespace pith
