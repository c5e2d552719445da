// Allgather, reduce-scatter, broadcast and alltoall of values coded in blocks with few bits, as
// FSDP and ZeRO++ send weights (qwZ) and gradients (qgZ) [Wang et al., "ZeRO++", 2023] and experts
// their tokens. Each value is coded once, where it comes from, and decoded once, where it goes to.
//
//   strand 0:  encode > carry bytes > decode, or decode and add    parcels 0, 4, 8, ...
//   strand 1:     encode > carry bytes > decode, or decode and add       1, 5, 9, ...
//   ...
//
// The bytes are carried by the algorithm that a dense call of as many would take, so that a parcel
// crosses hosts and links as the plain call does. A reduce-scatter is an alltoall, after which each
// rank adds all ranks' blocks in rank order, in float32, and rounds once to its type: nothing is
// coded twice, and a rank sends (P-1)/P m once, as with a ring.
//
// Cost: that of the carrier's algorithm with m coded instead of plain bytes; of a call with several
// parcels up to three others hide each one's alpha. Wins where the link is slower than the core
// codes.
#include "collectives/coded/coded_move.hpp"

#include <array>
#include <cstdint>

#include "collectives/chooser.hpp"
#include "collectives/coded/coded_parcels.hpp"
#include "collectives/strands.hpp"
#include "collectives/typed_span.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

// Lanes of a strand: more than any algorithm has.
constexpr std::uint16_t lanes_of_strand = 128;

// Ranks draw different numbers, so that their errors cancel out, and other ones in each call.
std::uint64_t key_of(const Call& call, const WireCoding& wire) {
  const std::uint64_t of_call = mix(mix(0, wire.seed()), call.number());
  return mix(of_call, static_cast<std::uint64_t>(call.callers_rank()));
}

// What all strands of a call share.
struct CodedMove {
  CodedMove(const Call& call, const CollectiveArgs& given)
      : args(given),
        coding(args.wire.coding()),
        key(key_of(call, args.wire)),
        parcels(args, coding, call.size()),
        on_device(call.compute().kind() != MemoryKind::host),
        piece(parcels.piece(on_device)) {}

  const CollectiveArgs& args;
  const Coding coding;
  const std::uint64_t key;
  const CodedParcels parcels;
  const bool on_device;
  const std::size_t piece;  // elements that kernels work on at once
};

// What one strand works in, parcel by parcel.
struct Room {
  Room(Call& call, const CodedMove& move)
      : coded(call.compute(), move.parcels.coded_bytes()),
        floats(call.compute(), move.parcels.float_bytes(move.on_device)) {}

  Scratch coded;
  Scratch floats;
};

// A parcel's coded blocks, one behind another on each side.
struct CodedBlocks {
  Bytes leave;
  Bytes arrive;
  std::size_t block = 0;  // bytes of one
};

CodedBlocks coded_blocks(const Call& call, const CodedMove& move, const Room& room, Range columns) {
  const Extent& extent = move.parcels.extent();
  CodedBlocks blocks;
  blocks.block = move.coding.bytes(columns.size);
  blocks.arrive = room.coded.bytes().part(0, extent.recv * blocks.block);
  if (move.parcels.are_apart()) {
    blocks.leave = room.coded.bytes().part(blocks.arrive.size, extent.send * blocks.block);
  } else {  // where this rank's block arrives
    const std::size_t own = extent.recv > 1 ? static_cast<std::size_t>(call.callers_rank()) : 0;
    blocks.leave = blocks.arrive.part(own * blocks.block, blocks.block);
  }
  return blocks;
}

// The values as float32 for kernels, which on a device need an aligned address.
const float* as_floats(Call& call, const CodedMove& move, const std::byte* in, std::size_t count,
                       std::byte* room) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(in) % alignof(float) == 0;
  if (move.args.type == DType::f32 && is_aligned) return reinterpret_cast<const float*>(in);
  call.run<ConvertKernel>({room, DType::f32, in, move.args.type, count, 1});
  return reinterpret_cast<const float*>(room);
}

// Encodes the columns of each block of send.
Fence encode(Call& call, const CodedMove& move, const Room& room, Range columns, std::byte* out) {
  Fence encoded;
  for (std::size_t block = 0; block < move.parcels.extent().send; ++block) {
    const Range whole{block * move.args.count + columns.begin, columns.size};
    for (Range left = whole; left.size > 0;) {
      const Range piece = take_front(left, move.piece);
      const std::byte* const in = part(move.args.send, move.args.type, piece).data;
      const float* values = as_floats(call, move, in, piece.size, room.floats.bytes().data);
      const CodingInput input{1, move.key, static_cast<std::uint32_t>(piece.begin)};
      encoded = call.run<EncodeValuesKernel>({move.coding, input, values, piece.size, out});
      out += move.coding.bytes(piece.size);
    }
  }
  return encoded;
}

// Decodes the columns of each block of recv.
Fence decode(Call& call, const CodedMove& move, Range columns, const CodedBlocks& in) {
  Fence decoded;
  for (std::size_t block = 0; block < move.parcels.extent().recv; ++block) {
    const Range whole{block * move.args.count + columns.begin, columns.size};
    std::byte* const out = part(move.args.recv, move.args.type, whole).data;
    decoded = call.run<DecodeValuesKernel>(
        {move.coding, in.arrive.data + block * in.block, columns.size, out, move.args.type, 1});
  }
  return decoded;
}

// Adds all ranks' blocks, in rank order.
Fence decode_sum(Call& call, const CodedMove& move, const Room& room, Range columns,
                 const CodedBlocks& in) {
  Fence decoded;
  std::byte* const sum = room.floats.bytes().data;
  std::byte* const next = sum + move.piece * sizeof(float);
  const float divisor = move.args.op == Op::avg ? static_cast<float>(call.size()) : 1;
  for (Range left{0, columns.size}; left.size > 0;) {
    const Range piece = take_front(left, move.piece);
    const std::byte* coded = in.arrive.data + move.coding.bytes(piece.begin);
    for (std::size_t block = 0; block < move.parcels.extent().recv; ++block, coded += in.block) {
      std::byte* const values = block == 0 ? sum : next;
      call.run<DecodeValuesKernel>({move.coding, coded, piece.size, values, DType::f32, 1});
      if (block == 0) continue;
      call.run<ReduceKernel>({sum, sum, next, piece.size, DType::f32, Op::sum});
    }
    const Range result{columns.begin + piece.begin, piece.size};
    std::byte* const out = part(move.args.recv, move.args.type, result).data;
    decoded = call.run<ConvertKernel>({out, move.args.type, sum, DType::f32, piece.size, divisor});
  }
  return decoded;
}

CollectiveArgs carried(const CodedMove& move, const CodedBlocks& blocks) {
  CollectiveArgs bytes;
  bytes.collective = carrier_of(move.args.collective);
  bytes.send = blocks.leave;
  bytes.recv = blocks.arrive;
  bytes.count = blocks.block;
  bytes.type = DType::u8;
  bytes.root = move.args.root;
  bytes.tuning = move.args.tuning;
  return bytes;
}

Task<Error> move_parcel(Call& call, const CodedMove& move, const Room& room, Range columns) {
  const Collective collective = move.args.collective;
  const CodedBlocks blocks = coded_blocks(call, move, room, columns);
  if (collective != Collective::broadcast || call.rank() == move.args.root) {
    co_await call.until(encode(call, move, room, columns, blocks.leave.data));
  }
  if (call.size() > 1) {
    const CollectiveArgs bytes = carried(move, blocks);
    const Algorithm& algorithm = call.chooser().algorithm(bytes.collective, bytes.count);
    Error error = co_await algorithm.run(call, bytes);
    if (error) co_return error;
  }
  const Fence decoded = collective == Collective::reduce_scatter
                            ? decode_sum(call, move, room, columns, blocks)
                            : decode(call, move, columns, blocks);
  co_await call.until(decoded);  // the next parcel arrives in the same memory
  co_return Error();
}

Task<Error> run_strand(Call& whole, const CodedMove& move, std::size_t number) {
  Call call(whole, static_cast<std::uint16_t>(number * lanes_of_strand));
  const Room room(call, move);
  for (std::size_t k = number; k < move.parcels.size(); k += move.parcels.strands()) {
    Error error = co_await move_parcel(call, move, room, move.parcels.columns(k));
    if (error) co_return error;
    co_await call.turn();
  }
  co_return Error();
}

}  // namespace

Task<Error> run_coded(Call& call, CollectiveArgs args) {
  const CodedMove move(call, args);
  std::array<Task<Error>, CodedParcels::most_strands> strands;
  const std::size_t running = move.parcels.strands();
  for (std::size_t i = 0; i < running; ++i) {
    strands[i] = strand(call, run_strand(call, move, i));
  }
  co_return co_await when_all(std::span(strands).first(running));
}

}  // namespace pith
