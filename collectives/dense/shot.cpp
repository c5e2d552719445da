#include "collectives/dense/shot.hpp"

namespace pith {

namespace {

// The input of `rank` for `range` at an address that kernels can read: in place, or copied into
// `room` at `offset`. Null where it comes by a message.
Expected<const std::byte*> reached_input(const Call& call, const Shot& shot, int rank, Range range,
                                         Bytes room, std::size_t offset) {
  const PeerHandles& theirs = shot.handles[rank];
  const std::byte* vector = rank == call.rank() ? shot.args.send.data : theirs.send;
  if (vector && !theirs.copies_only) return vector + range.begin * size_of(shot.args.type);
  if (!vector && theirs.far_send == 0) return static_cast<const std::byte*>(nullptr);
  const Bytes here = room.part(offset, range.size * size_of(shot.args.type));
  if (vector) {
    const std::byte* from = vector + range.begin * size_of(shot.args.type);
    call.host_compute().run<CopyKernel>({here.data, from, here.size});
  } else if (Error error = call.copy_from(rank, shot.far(theirs.far_send, range), here)) {
    return error;
  }
  return static_cast<const std::byte*>(here.data);
}

}  // namespace

Scratch Shot::room_for_fetched(const Call& call) const {
  bool any = handles.any_copies_only();
  for (int r = 0; r < ranks; ++r) any |= r != call.rank() && handles[r].far_send != 0;
  return any ? Scratch(call.host_compute(), chunk_bytes() * static_cast<std::size_t>(ranks))
             : Scratch();
}

Task<Error> give_inputs(Call& call, const Shot& shot, std::size_t strand, std::size_t strands) {
  const auto peers = static_cast<std::size_t>(shot.ranks - 1);
  const std::size_t messages = shot.most_chunks() * peers;
  for (std::size_t i = strand; i < messages; i += strands) {
    const int to = wrap(call.rank() + 1 + static_cast<int>(i % peers), shot.ranks);
    const auto k = static_cast<std::uint32_t>(i / peers);
    if (shot.handles[to].sees_send || k >= shot.chunks(to)) continue;
    const Bytes data = part(shot.args.send, shot.args.type, shot.piece(to, k));
    Error error = co_await call.send(to, Shot::input_lane, k, data);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> take_inputs(Call& call, const Shot& shot, std::uint32_t k, Bytes fetched,
                        Leases& leases, std::span<const std::byte*> inputs) {
  const Range range = shot.piece(call.rank(), k);
  const std::size_t bytes = range.size * size_of(shot.args.type);
  for (int r = 0; r < shot.ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const Expected<const std::byte*> here =
        reached_input(call, shot, r, range, fetched, i * shot.chunk_bytes());
    if (!here) co_return here.error();
    inputs[i] = *here;
    if (inputs[i]) continue;
    Expected<Borrowed> theirs = co_await call.borrow(r, Shot::input_lane, k, bytes);
    if (!theirs) co_return theirs.error();
    inputs[i] = leases.add(std::move(*theirs));
  }
  co_return Error();
}

void find_inputs(const Call& call, const Shot& shot, Range range,
                 std::span<const std::byte*> inputs) {
  for (int r = 0; r < shot.ranks; ++r) {
    std::byte* vector = r == call.rank() ? shot.args.send.data : shot.handles[r].send;
    inputs[static_cast<std::size_t>(r)] = shot.at(vector, range);
  }
}

}  // namespace pith
