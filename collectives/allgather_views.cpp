// Allgather over views: every rank copies the other ranks' blocks out of their send buffers.
//
// A block that can be reached is read in place, one that can only be copied is fetched chunk by
// chunk, any other comes by messages of a chunk, from its owner to each rank that cannot read it.
// Nobody writes into what others read: in place too a rank's own block stays as it is.
// Cost by messages, where no ranks share memory: alpha + (P-1) beta m. Wins where memory is in
// reach, except for short blocks, whose opening and closing cost more than they save. Needs: P <=
// 32.
#include "collectives/offers.hpp"

namespace pith {

namespace {

constexpr std::uint16_t block_lane = 0;

struct Gathering {
  CollectiveArgs args;
  Offers& offers;
  std::size_t chunk;  // in elements
  std::size_t peers;

  std::size_t messages() const { return chunks_in(args.count, chunk) * peers; }
  std::size_t lanes() const { return lanes_for(args.tuning, messages()); }
  bool reaches(int rank) const {
    return offers[rank].send != nullptr || offers[rank].far_send != 0;
  }
  bool reaches_all(const Call& call) const {
    bool all = true;
    for (int r = 0; r < call.size(); ++r) all &= r == call.rank() || reaches(r);
    return all;
  }
  Bytes block_of(const Call& call, int owner) const {
    const auto at = static_cast<std::size_t>(call.rank_at(owner));
    return args.recv.part(at * args.send.size, args.send.size);
  }
  Bytes piece(Bytes block, std::size_t k) const {
    return part(block, args.type, chunk_of({0, args.count}, chunk, k));
  }
};

// Message i goes to, or comes from, the peer at distance i % peers + 1 and has chunk i / peers.
Task<Error> give_blocks(Call& call, const Gathering& gathering, std::size_t lane) {
  const std::size_t messages = gathering.messages();
  for (std::size_t i = lane; i < messages; i += gathering.lanes()) {
    const int distance = static_cast<int>(i % gathering.peers) + 1;
    const int to = wrap(call.rank() + distance, call.size());
    if (gathering.offers[to].sees_send) continue;
    const std::size_t k = i / gathering.peers;
    const Bytes data = gathering.piece(gathering.args.send, k);
    Error error = co_await call.send(to, block_lane, static_cast<std::uint32_t>(k), data);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> take_blocks(Call& call, const Gathering& gathering, std::size_t lane) {
  const std::size_t messages = gathering.messages();
  for (std::size_t i = lane; i < messages; i += gathering.lanes()) {
    const int distance = static_cast<int>(i % gathering.peers) + 1;
    const int from = wrap(call.rank() - distance, call.size());
    if (gathering.reaches(from)) continue;
    const std::size_t k = i / gathering.peers;
    const Bytes into = gathering.piece(gathering.block_of(call, from), k);
    Error error = co_await call.recv(from, block_lane, static_cast<std::uint32_t>(k), into);
    if (error) co_return error;
  }
  co_return Error();
}

// The part of a block of `rank` that belongs into `here`, which is host memory where `rank` has it
// on the host.
Expected<Fence> copy_piece(Call& call, const Gathering& gathering, int rank, std::size_t offset,
                           Bytes here) {
  const Offer& offer = gathering.offers[rank];
  if (!offer.send) {
    if (Error error = call.copy_from(rank, offer.far_send + offset, here)) return error;
    return Fence();
  }
  const CopyKernel::Args args{here.data, offer.send + offset, here.size};
  return offer.apart ? call.host_compute().run<CopyKernel>(args) : call.run<CopyKernel>(args);
}

// By the host, for a device by way of pinned memory. It takes turns, for the rank's other work, and
// an abort, wait meanwhile.
Task<Error> copy_by_host(Call& call, const Gathering& gathering, int rank, Bytes block) {
  constexpr std::size_t pieces_a_turn = 16;
  const std::size_t chunk_bytes = gathering.chunk * size_of(gathering.args.type);
  const bool on_device = block.kind != MemoryKind::host;
  const Scratch room = on_device ? Scratch(call.host_compute(), chunk_bytes) : Scratch();
  Fence copied;
  for (std::size_t k = 0; k < chunks_in(gathering.args.count, gathering.chunk); ++k) {
    const Bytes into = gathering.piece(block, k);
    const Bytes here = on_device ? room.bytes().part(0, into.size) : into;
    const Expected<Fence> read = copy_piece(call, gathering, rank, k * chunk_bytes, here);
    if (!read) co_return read.error();
    copied = on_device ? copy(call, into, here) : *read;
    if (on_device) co_await call.until(copied);
    if (k % pieces_a_turn == pieces_a_turn - 1) co_await call.turn();
    if (call.comm().revoked) co_return call.comm().revoked;
  }
  co_await call.until(copied);
  co_return Error();
}

Task<Error> copy_reached(Call& call, const Gathering& gathering) {
  for (int d = 1; d < call.size(); ++d) {
    const int rank = wrap(call.rank() + d, call.size());
    if (!gathering.reaches(rank)) continue;
    const Bytes block = gathering.block_of(call, rank);
    const Offer& offer = gathering.offers[rank];
    if (block.kind != MemoryKind::host && offer.send && !offer.apart) {
      call.run<CopyKernel>({block.data, offer.send, block.size});  // closing waits for it
      continue;
    }
    Task<Error> copying = copy_by_host(call, gathering, rank, block);
    Error error = co_await std::move(copying);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> take_all(Call& call, const Gathering& gathering) {
  Task<Error> answers = gathering.offers.hear();
  Error error = co_await std::move(answers);
  if (error) co_return error;
  std::array<Task<Error>, most_lanes + 1> strands;
  std::size_t used = 0;
  if (!gathering.reaches_all(call)) {
    for (; used < gathering.lanes(); ++used) strands[used] = take_blocks(call, gathering, used);
  }
  strands[used++] = copy_reached(call, gathering);
  co_return co_await when_all(std::span(strands).first(used));
}

}  // namespace

Task<Error> allgather_views(Call& call, CollectiveArgs args) {
  Offers offers(call, args.send, {}, true);
  Task<Error> opening = offers.tell();
  Error error = co_await std::move(opening);
  if (error) co_return error;

  const Gathering gathering{args, offers, chunk_elements(args.tuning, args.type),
                            static_cast<std::size_t>(call.size() - 1)};
  const Fence copied = copy(call, gathering.block_of(call, call.rank()), args.send);
  std::array<Task<Error>, most_lanes + 1> strands;
  std::size_t used = 0;
  if (offers.hides_send()) {
    for (; used < gathering.lanes(); ++used) strands[used] = give_blocks(call, gathering, used);
  }
  strands[used++] = take_all(call, gathering);
  error = co_await when_all(std::span(strands).first(used));
  co_await call.until(copied);
  if (error || !offers.any()) co_return error;
  Task<Error> closing = offers.close();
  co_return co_await std::move(closing);
}

double allgather_views_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  return link.alpha + (shape.ranks - 1) * link.beta * static_cast<double>(shape.bytes);
}

}  // namespace pith
