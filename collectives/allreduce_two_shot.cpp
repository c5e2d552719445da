// Two-shot allreduce: rank r reduces block r of everybody's vector, then everybody gets it.
//
//   shot 1: block r of all P vectors -> rank r        shot 2: reduced block r -> all ranks
//
// Where memory can be reached, blocks are read in place and results are stored straight into the
// peers' buffers; where it can be copied, owners fetch the blocks chunk by chunk and put the
// results back, which wakes nobody; else they go by messages, chunk by chunk, so that reducing
// overlaps the wire. Kernels of a device take large pieces, and are not waited for between them,
// where they reach all buffers. Each pair of ranks does as its own two buffers allow. Operands in
// rank order:
// same bits for all. Cost by messages, one chunk a block, where no ranks share memory: 2 alpha +
// (P-1)(2 beta + gamma) n/P. Wins from some KiB on among few ranks. Needs: P <= 32.
#include <cmath>

#include "collectives/offers.hpp"

namespace pith {

namespace {

constexpr std::uint16_t input_lane = 0;
constexpr std::uint16_t result_lane = 1;

struct TwoShot {
  CollectiveArgs args;
  Offers& offers;
  Blocks blocks;
  std::size_t chunk;
  int ranks;

  Range piece(int owner, std::uint32_t k) const { return chunk_of(blocks[owner], chunk, k); }
  std::uint32_t chunks(int owner) const {
    return static_cast<std::uint32_t>(chunks_in(blocks[owner].size, chunk));
  }
  std::byte* at(std::byte* vector, Range range) const {
    return vector + range.begin * size_of(args.type);
  }
  std::uint64_t far(std::uint64_t vector, Range range) const {
    return vector + range.begin * size_of(args.type);
  }
  bool fetches(int rank) const {
    bool any = false;
    for (int r = 0; r < ranks; ++r) any |= r != rank && offers[r].far_send != 0;
    return any || offers.any_apart();
  }
};

// Shot 1, giving: block p of our vector to each rank p that cannot read it itself.
Task<Error> give_inputs(Call& call, const TwoShot& shot) {
  const std::uint32_t most = shot.chunks(0);
  for (std::uint32_t k = 0; k < most; ++k) {
    for (int d = 1; d < shot.ranks; ++d) {
      const int to = wrap(call.rank() + d, shot.ranks);
      if (shot.offers[to].sees_send || k >= shot.chunks(to)) continue;
      const Bytes data = part(shot.args.send, shot.args.type, shot.piece(to, k));
      Error error = co_await call.send(to, input_lane, k, data);
      if (error) co_return error;
    }
  }
  co_return Error();
}

// Shot 2, taking: the blocks of ranks that cannot store into our buffer.
Task<Error> take_results(Call& call, const TwoShot& shot) {
  const std::uint32_t most = shot.chunks(0);
  for (std::uint32_t k = 0; k < most; ++k) {
    for (int d = 1; d < shot.ranks; ++d) {
      const int from = wrap(call.rank() - d, shot.ranks);
      if (shot.offers[from].sees_recv || k >= shot.chunks(from)) continue;
      const Bytes into = part(shot.args.recv, shot.args.type, shot.piece(from, k));
      Error error = co_await call.recv(from, result_lane, k, into);
      if (error) co_return error;
    }
  }
  co_return Error();
}

// Reduces the inputs in rank order; the last operand's reduction writes to `out`, and with two
// ranks that reach each other straight to the peer as well.
Fence reduce_inputs(Call& call, const TwoShot& shot, Bytes out, std::byte* partial,
                    std::span<const std::byte* const> inputs, std::byte* also) {
  const CollectiveArgs& args = shot.args;
  const std::size_t count = elements_in(out, args.type);
  const bool streaming = args.recv.size >= (std::size_t{8} << 20);
  if (also) {
    return call.run<ReduceToTwoKernel>(
        {out.data, also, inputs[0], inputs[1], count, args.type, args.op, streaming});
  }
  const std::byte* so_far = inputs[0];
  Fence reduced;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    std::byte* target = i + 1 == inputs.size() ? out.data : partial;
    reduced = call.run<ReduceKernel>({target, so_far, inputs[i], count, args.type, args.op, false});
    so_far = target;
  }
  return reduced;
}

// Both shots of our own block by kernels that follow each other in one queue. Operands beyond two
// need room for what is half done where the result lies in the input.
Task<Error> reduce_on_device(Call& call, const TwoShot& shot) {
  constexpr std::size_t chunks_at_once = 16;
  const CollectiveArgs& args = shot.args;
  const int p = shot.ranks;
  const Range own = shot.blocks[call.rank()];
  const bool in_place = args.send.data == args.recv.data && p > 2;
  const std::size_t piece =
      in_place ? chunks_at_once * shot.chunk : std::max<std::size_t>(1, own.size);
  const bool direct = p == 2 && args.op != Op::avg;
  const Scratch partial(call.compute(), in_place ? piece * size_of(args.type) : 1);
  std::array<const std::byte*, most_view_ranks> inputs;
  Fence done;
  for (std::size_t k = 0; k < chunks_in(own.size, piece); ++k) {
    const Range range = chunk_of(own, piece, k);
    const Bytes out = part(args.recv, args.type, range);
    for (int r = 0; r < p; ++r) {
      std::byte* vector = r == call.rank() ? args.send.data : shot.offers[r].send;
      inputs[static_cast<std::size_t>(r)] = shot.at(vector, range);
    }
    std::byte* also = direct ? shot.at(shot.offers[1 - call.rank()].recv, range) : nullptr;
    done = reduce_inputs(call, shot, out, in_place ? partial.bytes().data : out.data,
                         std::span(inputs).first(static_cast<std::size_t>(p)), also);
    if (direct) continue;
    done = finish(call, args, out, done);
    for (int d = 1; d < p; ++d) {
      std::byte* theirs = shot.offers[wrap(call.rank() + d, p)].recv;
      done = call.run<CopyKernel>({shot.at(theirs, range), out.data, out.size}, done);
    }
  }
  co_await call.until(done);
  co_return Error();
}

// A rank's part of a chunk, copied into `room` where kernels cannot read it in place; null where it
// comes by a message.
Expected<const std::byte*> reached_input(const Call& call, const TwoShot& shot, int rank,
                                         Range range, Bytes room, std::size_t offset) {
  const Offer& offer = shot.offers[rank];
  const std::byte* vector = rank == call.rank() ? shot.args.send.data : offer.send;
  if (vector && !offer.apart) return vector + range.begin * size_of(shot.args.type);
  if (!vector && offer.far_send == 0) return static_cast<const std::byte*>(nullptr);
  const Bytes here = room.part(offset, range.size * size_of(shot.args.type));
  if (vector) {
    const std::byte* from = vector + range.begin * size_of(shot.args.type);
    call.compute().run<CopyKernel>({here.data, from, here.size});
  } else if (Error error = call.copy_from(rank, shot.far(offer.far_send, range), here)) {
    return error;
  }
  return static_cast<const std::byte*>(here.data);
}

// Shot 1, taking, and shot 2, giving: our own block, chunk by chunk.
Task<Error> reduce_own_block(Call& call, const TwoShot& shot) {
  Task<Error> answers = shot.offers.hear();
  Error heard = co_await std::move(answers);
  if (heard) co_return heard;
  if (shot.offers.all_on_device()) {
    Task<Error> at_once = reduce_on_device(call, shot);
    co_return co_await std::move(at_once);
  }
  const CollectiveArgs& args = shot.args;
  const int p = shot.ranks;
  const bool direct = p == 2 && args.op != Op::avg && shot.offers[1 - call.rank()].recv &&
                      !shot.offers[1 - call.rank()].apart;
  const std::size_t chunk_bytes = shot.chunk * size_of(args.type);
  const Scratch partial(call.compute(), chunk_bytes);
  const Scratch fetched =
      shot.fetches(call.rank())
          ? Scratch(call.host_compute(), chunk_bytes * static_cast<std::size_t>(p))
          : Scratch();
  Loans loans;
  std::array<const std::byte*, most_view_ranks> inputs;
  for (std::uint32_t k = 0; k < shot.chunks(call.rank()); ++k) {
    const Range range = shot.piece(call.rank(), k);
    const Bytes out = part(args.recv, args.type, range);
    for (int r = 0; r < p; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const Expected<const std::byte*> here =
          reached_input(call, shot, r, range, fetched.bytes(), i * chunk_bytes);
      if (!here) co_return here.error();
      inputs[i] = *here;
      if (inputs[i]) continue;
      Expected<Borrowed> theirs = co_await call.borrow(r, input_lane, k, out.size);
      if (!theirs) co_return theirs.error();
      inputs[i] = loans.add(std::move(*theirs));
    }
    std::byte* also = direct ? shot.at(shot.offers[1 - call.rank()].recv, range) : nullptr;
    Fence reduced = reduce_inputs(call, shot, out, partial.bytes().data,
                                  std::span(inputs).first(static_cast<std::size_t>(p)), also);
    loans.give_back(call, reduced);
    // Where all memory is in reach nothing else waits: the rank's other work, and an abort, must.
    constexpr std::uint32_t pieces_a_turn = 16;
    if (k % pieces_a_turn == pieces_a_turn - 1) {
      co_await call.turn();
      if (call.comm().revoked) co_return call.comm().revoked;
    }
    if (direct) continue;
    reduced = finish(call, args, out, reduced);
    for (int d = 1; d < p; ++d) {
      const int to = wrap(call.rank() + d, p);
      if (std::byte* theirs = shot.offers[to].recv) {
        call.run<CopyKernel>({shot.at(theirs, range), out.data, out.size}, reduced);
        continue;
      }
      if (shot.offers[to].far_recv != 0) {
        Bytes result = out;
        if (shot.offers[to].apart) {
          result = fetched.bytes().part(static_cast<std::size_t>(to) * chunk_bytes, out.size);
          reduced = copy(call, result, out);
        }
        co_await call.until(reduced);
        Error error = call.copy_to(to, shot.far(shot.offers[to].far_recv, range), result);
        if (error) co_return error;
        continue;
      }
      Error error = co_await call.send(to, result_lane, k, out, reduced);
      if (error) co_return error;
    }
    co_await call.until(reduced);
  }
  co_return Error();
}

}  // namespace

Task<Error> allreduce_two_shot(Call& call, CollectiveArgs args) {
  Offers offers(call, args.send, args.recv, true);
  Task<Error> opening = offers.tell();
  Error error = co_await std::move(opening);
  if (error) co_return error;
  const TwoShot shot{args, offers, Blocks(args.count, call.size()),
                     chunk_elements(args.tuning, args.type), call.size()};
  std::array<Task<Error>, 3> strands;
  std::size_t used = 0;
  if (offers.hides_send()) strands[used++] = give_inputs(call, shot);
  strands[used++] = reduce_own_block(call, shot);
  if (offers.hides_recv()) strands[used++] = take_results(call, shot);
  error = co_await when_all(std::span(strands).first(used));
  if (error || !offers.any()) co_return error;
  Task<Error> closing = offers.close();
  co_return co_await std::move(closing);
}

double allreduce_two_shot_cost(const Shape& shape, const LinkCost& link) {
  const double peers = shape.ranks - 1;
  const double per_block = static_cast<double>(shape.bytes) / shape.ranks;
  const double chunk = std::min(per_block, static_cast<double>(shape.tuning.chunk_bytes));
  const double chunks = std::max(1.0, std::ceil(per_block / chunk));
  const double wire = peers * link.beta * chunk;
  const double work = peers * link.gamma * chunk;
  const double one_chunk = 2 * link.alpha + 2 * wire + work;
  return one_chunk + (chunks - 1) * std::max(2 * wire, work);
}

}  // namespace pith
