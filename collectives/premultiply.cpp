#include "collectives/premultiply.hpp"

#include <cmath>

#include "collectives/typed_span.hpp"

namespace pith {

namespace {

struct Scaling {
  std::size_t blocks = 1;   // of send
  std::size_t columns = 0;  // elements of each block in one piece
  bool in_recv = false;     // recv takes the scaled inputs
};

Scaling plan(const CollectiveArgs& args, const Call& call) {
  Scaling scaling;
  scaling.blocks = extent_of(args.collective, call.size()).send;
  const bool is_root = args.collective == Collective::reduce && call.rank() == args.root;
  scaling.in_recv = args.collective == Collective::allreduce || is_root;
  const std::size_t room = premultiply_room(args.tuning, static_cast<std::size_t>(call.size()));
  scaling.columns = args.collective == Collective::allreduce
                        ? args.count
                        : room / (scaling.blocks * size_of(args.type));
  scaling.columns = std::max<std::size_t>(1, std::min(scaling.columns, args.count));
  return scaling;
}

// Scales `range` of every block into `out`, one after another.
Fence scale(Call& call, const CollectiveArgs& args, const Scaling& scaling, Range range,
            Bytes out) {
  const std::size_t bytes = range.size * size_of(args.type);
  Fence scaled;
  for (std::size_t b = 0; b < scaling.blocks; ++b) {
    const Bytes in = part(args.send, args.type, {b * args.count + range.begin, range.size});
    scaled = call.run<ScaleKernel>({out.data + b * bytes, in.data, range.size, args.type,
                                    args.factor.bits, args.factor.where});
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

void scale_average(CollectiveArgs& args, int ranks) {
  const NarrowExponent exponent = narrow_exponent(args.type);
  if (args.op != Op::avg || !reduces(args.collective) || exponent.bias == 0 || ranks == 1) return;
  const int halvings = std::min(ceil_log2(ranks), exponent.bias - 1);  // the factor stays normal
  args.factor.bits = static_cast<std::uint64_t>(exponent.bias - halvings) << exponent.shift;
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
    co_await call.until(scale(call, args, {}, {0, args.count}, args.recv));
    co_return Error();
  }
  const std::size_t piece_bytes = scaling.blocks * scaling.columns * size_of(args.type);
  const Scratch work(call.compute(), scaling.in_recv ? 1 : piece_bytes);
  for (std::size_t begin = 0; begin < args.count; begin += scaling.columns) {
    const Range range{begin, std::min(scaling.columns, args.count - begin)};
    CollectiveArgs piece = args;
    piece.factor = {};
    piece.count = range.size;
    piece.recv = part(args.recv, args.type, range);
    piece.send = (scaling.in_recv ? piece.recv : work.bytes())
                     .part(0, scaling.blocks * range.size * size_of(args.type));
    co_await call.until(scale(call, args, scaling, range, piece.send));
    Error error = co_await algorithm.run(call, piece);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace pith
