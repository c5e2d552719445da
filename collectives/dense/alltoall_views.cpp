// All-to-all over views: every rank copies its own block out of all other ranks' send buffers.
//
// A block in memory that this rank can load from is read in place. A block in memory that can only
// be copied is fetched chunk by chunk. Any other block comes by messages of one chunk each. Before
// uneven blocks each rank tells each other one where its block lies, and how long it is.
// Cost by messages, where no ranks share memory: alpha + (P-1) beta m for blocks of m bytes. Wins
// where ranks share memory, except for short blocks, where opening and closing
// (handle_exchange.hpp) cost more than they save. Needs: send and recv must not overlap, P <= 32.
#include <fmt/format.h>

#include "collectives/dense/sent_blocks.hpp"

namespace pith {

namespace {

constexpr std::uint16_t range_lane = 1;  // moved blocks have lane 0

using Ranges = std::array<Range, most_view_ranks>;  // by rank

Bytes bytes_of(Range& range) { return {reinterpret_cast<std::byte*>(&range), sizeof range}; }

Error another_count(const Call& call, int from, std::size_t sent, std::size_t expected) {
  const int peer = call.route(from).peer;
  return call.fail(Error(
      Code::invalid_usage,
      fmt::format("rank {} sent {} elements where {} were to be received", peer, sent, expected),
      peer));
}

// Tells every rank where the block for it lies in this rank's send buffer, and finds out where this
// rank's blocks lie. They must be as long as those that this rank expects.
Task<Error> exchange_ranges(Call& call, const CollectiveArgs& args, Ranges& told, Ranges& heard) {
  for (int d = 1; d < call.size(); ++d) {
    const int to = wrap(call.rank() + d, call.size());
    Range& range = told[static_cast<std::size_t>(to)];
    range = send_block(args, call.rank_at(to));
    Error error = co_await call.send(to, range_lane, 0, bytes_of(range));
    if (error) co_return error;
  }
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    Range& range = heard[static_cast<std::size_t>(from)];
    Error error = co_await call.recv(from, range_lane, 0, bytes_of(range));
    if (error) co_return error;
    const std::size_t expected = recv_block(args, call.rank_at(from)).size;
    if (range.size != expected) co_return another_count(call, from, range.size, expected);
  }
  co_return Error();
}

Task<Error> move_uneven(Call& call, const CollectiveArgs& args) {
  Ranges told;
  Ranges heard;
  Error error = co_await exchange_ranges(call, args, told, heard);
  if (error) co_return error;
  HandleExchange handles(call, args.send, {}, copies_of(args.tuning));
  co_return co_await handles.around(move_blocks(call, args, handles, heard.data()));
}

}  // namespace

Task<Error> alltoall_views(Call& call, CollectiveArgs args) {
  if (args.uneven.used()) co_return co_await move_uneven(call, args);
  HandleExchange handles(call, args.send, {}, copies_of(args.tuning));
  co_return co_await handles.around(move_blocks(call, args, handles));
}

double alltoall_views_cost(const Shape& shape, const LinkCost& link) {
  return moved_blocks_cost(shape, link);
}

}  // namespace pith
