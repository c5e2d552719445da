#include "collectives/premultiply.hpp"

#include <cmath>

#include "collectives/scratch_span.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

struct Scaling {
  std::size_t blocks = 1;   // of send
  std::size_t columns = 0;  // elements of each block in one piece
  bool in_recv = false;     // recv takes the scaled inputs
};

// Of uneven blocks that a reduction has.
std::span<const Range> blocks_of(const CollectiveArgs& args) {
  return {args.uneven.send, args.uneven.ranks};
}

Scaling plan(const CollectiveArgs& args, const Call& call) {
  Scaling scaling;
  scaling.blocks = extent_of(args.collective, call.size()).send;
  const bool is_root = args.collective == Collective::reduce && call.rank() == args.root;
  const bool all_receive =
      args.collective == Collective::allreduce || args.collective == Collective::scan;
  scaling.in_recv = all_receive || is_root;
  const std::size_t room = premultiply_room(args.tuning, static_cast<std::size_t>(call.size()));
  if (all_receive) {
    scaling.columns = args.count;
  } else if (args.uneven.used()) {
    scaling.columns = columns_within(blocks_of(args), room / size_of(args.type));
  } else {
    scaling.columns = room / (scaling.blocks * size_of(args.type));
  }
  scaling.columns = std::max<std::size_t>(1, std::min(scaling.columns, longest_block(args)));
  return scaling;
}

Fence scale(Call& call, const CollectiveArgs& args, Bytes out, Bytes in) {
  return call.run<ScaleKernel>({out.data, in.data, elements_in(in, args.type), args.type,
                                args.factor.bits, args.factor.where});
}

// What piece k has of a block.
Range piece_of(Range block, const Scaling& scaling, std::size_t k) {
  return chunk_of(block, scaling.columns, k);
}

// The arguments of piece k, some columns of every block. Its scaled inputs go into `room`, one
// block behind another; `blocks` takes where each lies, if they are uneven.
CollectiveArgs piece_args(const CollectiveArgs& args, const Scaling& scaling, std::size_t k,
                          Bytes room, std::span<Range> blocks) {
  CollectiveArgs piece = args;
  piece.factor = {};
  piece.count = piece_of({0, args.count}, scaling, k).size;
  const Range result{0, elements_in(args.recv, args.type)};
  piece.recv = part(args.recv, args.type, piece_of(result, scaling, k));
  std::size_t all = scaling.blocks * piece.count;
  if (args.uneven.used()) {
    all = 0;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const std::size_t size = piece_of(args.uneven.send[b], scaling, k).size;
      blocks[b] = {all, size};
      all += size;
    }
    piece.uneven.send = blocks.data();
  }
  piece.send = part(scaling.in_recv ? piece.recv : room, args.type, {0, all});
  return piece;
}

// Scales the inputs of piece k.
Fence scale(Call& call, const CollectiveArgs& args, const Scaling& scaling, std::size_t k,
            const CollectiveArgs& piece) {
  Fence scaled;
  for (std::size_t b = 0; b < scaling.blocks; ++b) {
    const int block = static_cast<int>(b);
    const Range range = piece_of(send_block(args, block), scaling, k);
    if (range.size == 0) continue;
    scaled = scale(call, args, part(piece.send, args.type, send_block(piece, block)),
                   part(args.send, args.type, range));
  }
  return scaled;
}

struct NarrowExponent {
  int bias = 0;
  int shift = 0;  // the exponent's first bit
};

NarrowExponent narrow_exponent(DType type) {
  if (type == DType::f16) return {15, 10};
  if (type == DType::f8e4m3) return {7, 3};
  if (type == DType::f8e5m2) return {15, 2};
  return {};
}

}  // namespace

bool is_scaled_average(const CollectiveArgs& args, int ranks) {
  return args.op == Op::avg && ranks > 1 && reduces(args.collective) &&
         narrow_exponent(args.type).bias != 0;
}

void scale_average(CollectiveArgs& args, int ranks) {
  if (!is_scaled_average(args, ranks)) return;
  const NarrowExponent exponent = narrow_exponent(args.type);
  const int halvings = std::min(ceil_log2(ranks), exponent.bias - 1);  // the factor stays normal
  args.factor.bits = {static_cast<std::uint64_t>(exponent.bias - halvings) << exponent.shift};
  args.factor.used = true;
  args.divisor = std::ldexp(static_cast<float>(ranks), -halvings);
  if (args.divisor == 1) args.op = Op::sum;
}

Task<Error> run_premultiplied(Call& call, CollectiveArgs args, const Algorithm& algorithm) {
  if (args.count == 0) {
    co_return co_await algorithm.run(call, args);
  }
  const Scaling scaling = plan(args, call);
  if (call.size() == 1) {
    co_await call.until(scale(call, args, args.recv, args.send));
    co_return Error();
  }
  const std::size_t elements = args.uneven.used()
                                   ? elements_in_columns(blocks_of(args), scaling.columns)
                                   : scaling.blocks * scaling.columns;
  const std::size_t piece_bytes = elements * size_of(args.type);
  const Scratch work(call.compute(), scaling.in_recv ? 1 : piece_bytes);
  const Scratch ranges = args.uneven.used()
                             ? Scratch(call.host_compute(), args.uneven.ranks * sizeof(Range))
                             : Scratch();
  const std::size_t pieces = chunks_in(longest_block(args), scaling.columns);
  for (std::size_t k = 0; k < pieces; ++k) {
    const CollectiveArgs piece =
        piece_args(args, scaling, k, work.bytes(), span_of<Range>(ranges, args.uneven.ranks));
    co_await call.until(scale(call, args, scaling, k, piece));
    Error error = co_await algorithm.run(call, piece);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace pith
