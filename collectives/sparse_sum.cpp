#include "collectives/sparse_sum.hpp"

#include <array>

#include "collectives/list_adder.hpp"
#include "collectives/list_message.hpp"
#include "collectives/strands.hpp"

namespace pith {

void add_lists(Call& call, std::span<const SparseList> lists, DType type, Range range,
               PairList& sum) {
  std::size_t total = 0;
  for (const SparseList& list : lists) total += list.count;
  sum.begin(DType::f32);
  sum.reserve(total);
  ListAdder adder(call, lists.size());
  std::size_t count = 0;
  for (std::size_t k = 0; k < chunks_in(range.size, ListAdder::block); ++k) {
    count += adder.add(lists, type, chunk_of(range, ListAdder::block, k), sum.indices(count),
                       sum.values(count));
  }
  sum.end_run(count);
}

namespace {

// What came in one message or several.
SparseList all_of(PairList& list) { return {list.indices(), list.values(), list.count()}; }

constexpr int every_other = -1;

// What of a list lies in the range of `parts`.
Task<Error> send_list(Call& call, ListAddress to, SparseList list, ListParts parts, DType type,
                      std::uint32_t flags, Traffic& traffic) {
  const bool to_all = to.peer == every_other;
  const auto times = static_cast<std::uint64_t>(to_all ? call.size() - 1 : 1);
  for (std::size_t k = 0; k < parts.count(); ++k) {
    const ListMessage message = write_list(call, list, parts[k], type, flags);
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
  std::uint32_t step;
  SparseList own = args.own;  // the sum so far
  bool odd = false;

  // Steps of different vectors must not meet.
  ListAddress name(int peer) const { return {peer, args.lane, step}; }
  ListParts parts() const { return {{0, args.count}, args.message_elements}; }
  PairList& came() const { return args.memory[0]; }
  // Adds what came; the sum lies where the one before does not.
  void add(Call& call, bool came_first) {
    std::array<SparseList, 2> both{own, all_of(came())};
    if (came_first) std::swap(both[0], both[1]);
    PairList& sum = args.memory[odd ? 1 : 2];
    odd = !odd;
    add_lists(call, both, DType::f32, {0, args.count}, sum);
    own = sum.run(0);
  }
};

Task<Error> give(Call& call, Doubling& doubling, int to, Traffic& traffic) {
  return send_list(call, doubling.name(to), doubling.own, doubling.parts(), DType::f32,
                   *doubling.args.flags, traffic);
}

Task<Error> get(Call& call, Doubling& doubling, int from, Traffic& traffic) {
  PairList& into = doubling.came();
  into.begin(DType::f32);
  co_return co_await receive_list(call, doubling.name(from), doubling.parts(), into,
                                  *doubling.args.flags, traffic);
}

// Both have the sum of their lists afterwards.
Task<Error> merge_with(Call& call, Doubling& doubling, int peer, Traffic& traffic) {
  std::array<Task<Error>, 2> strands{strand(call, give(call, doubling, peer, traffic)),
                                     strand(call, get(call, doubling, peer, traffic))};
  Error error = co_await when_all(strands);
  if (!error) doubling.add(call, peer < call.rank());
  co_return error;
}

}  // namespace

Task<Error> sparse_sum_doubling(Call& call, SparseSum args, Traffic& traffic) {
  Doubling doubling{args, args.step * 64};
  const std::uint32_t last_step = doubling.step + 63;
  const int p = call.size();
  const int core = floor_power_of_two(p);
  const int rank = call.rank();
  Error error;
  if (rank >= core) {
    error = co_await give(call, doubling, rank - core, traffic);
    doubling.step = last_step;
    if (!error) error = co_await get(call, doubling, rank - core, traffic);
    if (!error) *args.sum = all_of(doubling.came());
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
  *args.sum = doubling.own;
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
    Error error =
        co_await send_list(call, {to, args.lane, 2 * args.step}, args.own,
                           {shares[to], args.message_elements}, args.type, *args.flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> receive_shares(Call& call, const SparseSum& args, Share& share, Traffic& traffic) {
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    PairList& list = share.came[static_cast<std::size_t>(from)];
    list.begin(args.type);
    Error error =
        co_await receive_list(call, {from, args.lane, 2 * args.step},
                              {share.range, args.message_elements}, list, *args.flags, traffic);
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
    lists[r] = r == own ? part_of(args.own, args.type, share.range.begin, share.range.size)
                        : all_of(share.came[r]);
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
    Error error =
        co_await receive_list(call, {from, args.lane, 2 * args.step + 1},
                              {shares[from], args.message_elements}, list, *args.flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> send_sum(Call& call, const SparseSum& args, const PairList& sum, Range range,
                     Traffic& traffic) {
  return send_list(call, {every_other, args.lane, 2 * args.step + 1}, sum.run(0),
                   {range, args.message_elements}, DType::f32, *args.flags, traffic);
}

}  // namespace

Task<Error> sparse_sum_split(Call& call, SparseSum args, Traffic& traffic) {
  const auto p = static_cast<std::size_t>(call.size());
  const std::span<PairList> sums = args.memory.subspan(p, p);
  PairList& all = args.memory[2 * p];
  Share share{Blocks(args.count, call.size())[call.rank()], args.memory.first(p)};
  std::array<Task<Error>, 2> split{strand(call, send_shares(call, args, traffic)),
                                   strand(call, receive_shares(call, args, share, traffic))};
  Error error = co_await when_all(split);
  if (error) co_return error;
  PairList& own = sums[static_cast<std::size_t>(call.rank())];
  add_share(call, args, share, own);
  std::array<Task<Error>, 2> gather{strand(call, send_sum(call, args, own, share.range, traffic)),
                                    strand(call, receive_sums(call, args, sums, traffic))};
  error = co_await when_all(gather);
  if (error) co_return error;
  std::size_t room = 0;
  for (const PairList& list : sums) room += list.count();
  all.begin(DType::f32);
  all.reserve(room);
  std::size_t at = 0;
  for (PairList& list : sums) {
    if (list.count() == 0) continue;
    std::copy_n(list.indices(), list.count(), all.indices(at));
    call.run<CopyKernel>({all.values(at), list.values(), list.count() * sizeof(float)});
    at += list.count();
  }
  all.end_run(room);
  *args.sum = all.run(0);
  co_return error;
}

}  // namespace pith
