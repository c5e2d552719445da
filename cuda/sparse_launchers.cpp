#include "cuda/sparse_launchers.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "cuda/launch_queue.hpp"

namespace pith::cuda {

namespace {

static_assert(sizeof(PassTotals) == sizeof(PassResult));
static_assert(offsetof(PassTotals, squares) == offsetof(PassResult, squares));
static_assert(sizeof(ListView) == sizeof(SparseList));
static_assert(sizeof(DecodedIndices) == sizeof(Decoded));
static_assert(offsetof(DecodedIndices, bytes) == offsetof(Decoded, bytes));
static_assert(sample_line == SampleKernel::line);
static_assert(magnitude_bins == MagnitudeHistogram::bins);
static_assert(magnitude_shift == MagnitudeHistogram::shift);
static_assert(IndexForm::elements == EncodeIndicesKernel::block_elements);

LaunchQueue& queue() { return LaunchQueue::current(); }

std::size_t pieces(std::size_t count, std::size_t piece) { return (count + piece - 1) / piece; }

// At least one tile, so that an empty vector's result is written.
std::size_t tiles_of(std::size_t count, std::size_t tile_elements) {
  return std::max<std::size_t>(pieces(count, tile_elements), 1);
}

// Lays out a workspace: parts one behind another, each on its own cache line.
class Layout {
 public:
  std::size_t add(std::size_t bytes) {
    const std::size_t at = bytes_;
    bytes_ += (bytes + line - 1) / line * line;
    return at;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t line = 128;
  std::size_t bytes_ = 0;
};

struct Tiles {
  TileState* state;
  double* parts;
  std::byte* more;
};

// A zeroed state and parts for `tiles` tiles, and `more` bytes whose first `zeros` bytes are zero.
Tiles workspace_for(std::size_t tiles, std::size_t more = 0, std::size_t zeros = 0) {
  Layout layout;
  const std::size_t state = layout.add(tile_state_bytes(tiles));
  const std::size_t extra = layout.add(more);
  const std::size_t parts = layout.add(tiles * sizeof(double));
  std::byte* const memory = queue().workspace(layout.bytes());
  queue().fill(memory + state, 0, extra + zeros);
  return {reinterpret_cast<TileState*>(memory + state), reinterpret_cast<double*>(memory + parts),
          memory + extra};
}

// A pass has kernels without a gradient (`none`), then per gradient type, in the order of
// PITH_CUDA_PASSES.
KernelName pass_kernel(KernelName none, const AccumulateKernel::Args& args) {
  constexpr auto step = static_cast<std::size_t>(KernelName::accumulate_f16) -
                        static_cast<std::size_t>(KernelName::accumulate_none);
  static_assert(static_cast<std::size_t>(KernelName::histogram_bf16) ==
                static_cast<std::size_t>(KernelName::histogram_none) + 3 * step);
  std::size_t type = 0;
  if (args.gradient) type = args.type == DType::f16 ? 1 : args.type == DType::f32 ? 2 : 3;
  return static_cast<KernelName>(static_cast<std::size_t>(none) + type * step);
}

// Kernels by type of values, in the order f16, f32, bf16.
KernelName value_kernel(KernelName f16, DType type) {
  constexpr auto step = static_cast<std::size_t>(KernelName::take_f32) -
                        static_cast<std::size_t>(KernelName::take_f16);
  static_assert(static_cast<std::size_t>(KernelName::convert_bf16) ==
                static_cast<std::size_t>(KernelName::convert_f16) + 2 * step);
  const std::size_t place = type == DType::f16 ? 0 : type == DType::f32 ? 1 : 2;
  return static_cast<KernelName>(static_cast<std::size_t>(f16) + place * step);
}

CodeForm form_of(const Coding& coding) {
  static_assert(static_cast<int>(CodeKind::signs) == static_cast<int>(Coding::Kind::signs));
  static_assert(static_cast<int>(CodeKind::ternary) == static_cast<int>(Coding::Kind::ternary));
  static_assert(static_cast<int>(CodeKind::e5m2) == static_cast<int>(Coding::Kind::e5m2));
  static_assert(static_cast<int>(CodeKind::dynamic) == static_cast<int>(Coding::Kind::dynamic));
  return {static_cast<CodeKind>(coding.kind),
          coding.bits,
          coding.draws,
          coding.block,
          coding.clip,
          coding.sparsity};
}

Factored factored(const FactorShape& shape) { return {shape.rows, shape.columns, shape.rank}; }

// Adds the magnitudes of a pass to the histogram, before the pass changes them.
void count_magnitudes(const AccumulateKernel::Args& args) {
  if (!args.histogram || args.count == 0) return;
  auto* const sums = reinterpret_cast<MagnitudeSums*>(queue().workspace(sizeof(MagnitudeSums)));
  queue().fill(sums, 0, sizeof *sums);
  const HistogramArgs count{args.accumulator, args.gradient, args.count, sums, args.fresh};
  queue().launch(pass_kernel(KernelName::histogram_none, args),
                 pieces(args.count, CountMagnitudes<float>::block_elements), count);
  const AddHistogramArgs add{sums, args.histogram->counts.data(), args.histogram->squares.data()};
  queue().launch(KernelName::add_histogram, magnitude_bins / AddHistogram::threads, add);
}

// The bits from which on a magnitude passes the threshold.
std::uint32_t cut_of(float threshold) {
  if (threshold != threshold) return float_infinity;
  return threshold <= 0 ? 0 : std::bit_cast<std::uint32_t>(threshold);
}

using AnySelect = Select<float, true>;

// Tiles, workspace and places of results; not which elements pass, nor a gradient.
SelectArgs selection(const AccumulateKernel::Args& pass, std::uint32_t first) {
  const std::size_t skew = misalignment(pass.accumulator, words_bytes) / sizeof(float);
  const std::size_t tiles = tiles_of(skew + pass.count, AnySelect::tile_elements);
  const Tiles work = workspace_for(tiles);
  SelectArgs select{};
  select.accumulator = pass.accumulator;
  select.count = pass.count;
  select.result = reinterpret_cast<PassTotals*>(pass.result);
  select.state = work.state;
  select.parts = work.parts;
  select.tiles = tiles;
  select.first = first;
  select.skew = static_cast<std::uint32_t>(skew);
  return select;
}

void launch_pass(KernelName none, const SelectKernel::Args& args) {
  const AccumulateKernel::Args& pass = args.pass;
  count_magnitudes(pass);
  SelectArgs select = selection(pass, args.first);
  select.gradient = pass.gradient;
  select.capacity = args.capacity;
  select.indices = args.indices;
  select.values = args.values;
  select.cut = cut_of(args.threshold);
  select.fresh = pass.fresh;
  queue().launch(pass_kernel(none, pass), select.tiles, select);
}

void launch_list(KernelName f16, DType type, ListArgs list, bool sums) {
  const std::size_t tiles = tiles_of(list.count, ListPass<float, ListWork::take>::tile_elements);
  if (sums) {
    const Tiles work = workspace_for(tiles);
    list.state = work.state;
    list.parts = work.parts;
    list.tiles = tiles;
  } else if (list.count == 0) {
    return;
  }
  queue().launch(value_kernel(f16, type), tiles, list);
}

// Copies a host array to device memory as arguments of launches.
void store_words(std::byte* out, const void* words, std::size_t count) {
  StoreWordsArgs args;
  for (std::size_t begin = 0; begin < count; begin += StoreWordsArgs::most) {
    args.out = reinterpret_cast<std::uint64_t*>(out) + begin;
    args.count = std::min<std::size_t>(count - begin, StoreWordsArgs::most);
    std::memcpy(args.words, static_cast<const std::uint64_t*>(words) + begin,
                args.count * sizeof(std::uint64_t));
    queue().launch(KernelName::store_words, 1, args);
  }
}

void launch_convert_any(const ConvertArgs& args, DType type) {
  if (args.count == 0) return;
  queue().launch_walk(value_kernel(KernelName::convert_f16, type),
                      pieces(args.count, Convert<float>::threads), args);
}

}  // namespace

void launch_accumulate(const AccumulateKernel::Args& args) {
  launch_pass(KernelName::accumulate_none, {args, 0, 0, nullptr, nullptr, 0});
}

void launch_select(const SelectKernel::Args& args) { launch_pass(KernelName::select_none, args); }

void launch_sample(const SampleKernel::Args& args) {
  if (args.lines == 0) return;
  const AccumulateKernel::Args& pass = args.pass;
  const SampleArgs sample{pass.accumulator, pass.gradient,   args.lines,
                          args.stride,      args.magnitudes, pass.fresh};
  queue().launch(pass_kernel(KernelName::sample_none, pass),
                 pieces(args.lines * sample_line, Sample<float>::threads), sample);
}

void launch_histogram(const HistogramKernel::Args& args) {
  count_magnitudes({const_cast<float*>(args.values), nullptr, DType::f32, args.count, false,
                    nullptr, args.histogram});
}

void launch_draw(const DrawKernel::Args& args) {
  DrawArgs draw{selection({args.accumulator, nullptr, DType::f32, args.count, false, args.result},
                          args.first),
                args.key, args.sure};
  draw.capacity = args.count;
  draw.indices = args.indices;
  draw.values = args.values;
  queue().launch(KernelName::draw, draw.tiles, draw);
}

void launch_momentum(const MomentumKernel::Args& args) {
  if (args.count == 0) return;
  const MomentumArgs momentum{args.velocity, args.gradient, args.count, args.momentum, args.factor};
  queue().launch_walk(value_kernel(KernelName::momentum_f16, args.type),
                      pieces(args.count, CorrectMomentum<float>::threads), momentum);
}

void launch_keep_largest(const KeepLargestKernel::Args& args) {
  if (args.k == 0 || args.k > args.count) return queue().refuse();
  // More equal values would overflow into the bits of the other count of a tile's sum.
  if (args.count >= KeepLargest::equal_one) return queue().refuse();
  const std::size_t tiles = tiles_of(args.count, KeepLargest::tile_elements);
  const Tiles work = workspace_for(tiles, sizeof(KthState), sizeof(KthState));
  auto* const kth = reinterpret_cast<KthState*>(work.more);
  const KthArgs find{args.values, args.count, args.k, kth};
  const std::size_t blocks = pieces(args.count, 16 * FindKth<0>::threads);
  queue().launch_walk(KernelName::kth_high, blocks, find);
  queue().launch_walk(KernelName::kth_middle, blocks, find);
  queue().launch_walk(KernelName::kth_low, blocks, find);
  const KeepArgs keep{args.indices,     args.values,   args.count,   args.k,
                      args.accumulator, args.smallest, args.squares, kth,
                      work.state,       work.parts,    tiles};
  queue().launch(KernelName::keep_largest, tiles, keep);
}

void launch_split(const SplitKernel::Args& args) {
  const std::size_t tiles = tiles_of(args.count, Split::tile_elements);
  const SplitArgs split{args.indices,   args.values,        args.count,
                        args.threshold, args.lower_indices, args.lower_values,
                        args.kept,      args.lower,         workspace_for(tiles).state,
                        tiles};
  queue().launch(KernelName::split, tiles, split);
}

void launch_squares(const SquaresKernel::Args& args) {
  ListArgs list;
  list.values = const_cast<std::byte*>(args.values);
  list.count = args.count;
  list.squares = args.squares;
  launch_list(KernelName::squares_f16, args.type, list, true);
}

void launch_take(const TakeKernel::Args& args) {
  ListArgs list;
  list.accumulator = args.accumulator;
  list.indices = args.indices;
  list.values = args.values;
  list.count = args.count;
  list.squares = args.squares;
  launch_list(KernelName::take_f16, args.type, list, true);
}

void launch_round(const RoundKernel::Args& args) {
  ListArgs list;
  list.accumulator = args.accumulator;
  list.indices = args.indices;
  list.in = args.in;
  list.values = args.out;
  list.count = args.count;
  launch_list(KernelName::round_f16, args.type, list, false);
}

void launch_return(const ReturnKernel::Args& args) {
  ListArgs list;
  list.accumulator = args.accumulator;
  list.indices = args.indices;
  list.values = const_cast<std::byte*>(args.values);
  list.count = args.count;
  launch_list(KernelName::give_back_f16, args.type, list, false);
}

void launch_sum_values(const SumValuesKernel::Args& args) {
  if (args.count == 0) return;
  std::byte* const in = queue().workspace(args.n * sizeof(void*));
  store_words(in, args.in, args.n);
  const SumValuesArgs sum{args.out,         reinterpret_cast<const std::byte* const*>(in),
                          args.n,           args.count,
                          args.accumulator, args.indices};
  queue().launch_walk(value_kernel(KernelName::sum_values_f16, args.type),
                      pieces(args.count, SumValues<float>::threads), sum);
}

void launch_sum_lists(const SumListsKernel::Args& args) {
  const std::size_t tiles = tiles_of(args.span, slice_elements);
  const Tiles work = workspace_for(tiles, args.n * sizeof(SparseList));
  store_words(work.more, args.lists, args.n * (sizeof(SparseList) / sizeof(std::uint64_t)));
  const SumListsArgs sum{reinterpret_cast<const ListView*>(work.more),
                         args.n,
                         args.span,
                         args.indices,
                         args.values,
                         args.count,
                         work.state,
                         tiles,
                         args.first,
                         args.type};
  queue().launch(KernelName::sum_lists, tiles, sum);
}

void launch_scatter(const ScatterKernel::Args& args) {
  if (args.span == 0) return;
  const ScatterArgs scatter{args.out,  args.indices, args.values,  args.count,
                            args.span, args.first,   args.divisor, args.value_type};
  queue().launch(value_kernel(KernelName::scatter_f16, args.type),
                 pieces(args.span, slice_elements), scatter);
}

void launch_convert(const ConvertKernel::Args& args) {
  launch_convert_any({args.out, args.in, args.count, args.divisor, args.in_type}, args.type);
}

void launch_zero(const ZeroKernel::Args& args) { queue().fill(args.out, 0, args.bytes); }

void launch_fill_nan(const FillNanKernel::Args& args) {
  launch_convert_any({args.out, nullptr, args.count, 1, DType::f32}, args.type);
}

void launch_encode_values(const EncodeValuesKernel::Args& args) {
  if (args.count == 0) return;
  if (args.coding.kind == Coding::Kind::bf16) {
    const auto* in = reinterpret_cast<const std::byte*>(args.in);
    return launch_convert({args.out, DType::bf16, in, DType::f32, args.count, 1});
  }
  const EncodeValuesArgs encode{
      args.in,          args.out,        args.count, args.input.key, form_of(args.coding),
      args.input.scale, args.input.first};
  queue().launch_walk(KernelName::encode_values, pieces(args.count, args.coding.block), encode);
}

void launch_decode_values(const DecodeValuesKernel::Args& args) {
  if (args.count == 0) return;
  if (args.coding.kind == Coding::Kind::bf16) {
    return launch_convert({args.out, args.type, args.in, DType::bf16, args.count, args.divisor});
  }
  const DecodeValuesArgs decode{args.in,      args.out,    args.count, form_of(args.coding),
                                args.divisor, args.instead};
  queue().launch_walk(value_kernel(KernelName::decode_values_f16, args.type),
                      pieces(args.count, args.coding.block), decode);
}

void launch_project(const ProjectKernel::Args& args) {
  const ProjectArgs project{factored(args.shape), args.matrix, args.right, args.left, true};
  queue().launch_walk(KernelName::project, pieces(args.shape.rows, ProjectTile::groups), project);
}

void launch_back_project(const BackProjectKernel::Args& args) {
  const ProjectArgs project{factored(args.shape), args.matrix, args.left, args.right, args.fresh};
  queue().launch_walk(KernelName::back_project, pieces(args.shape.columns, ProjectTile::lanes),
                      project);
}

void launch_add_product(const AddProductKernel::Args& args) {
  const std::size_t count = args.shape.rows * args.shape.columns;
  if (count == 0) return;
  const AddProductArgs add{factored(args.shape), args.left, args.right, args.matrix, args.factor};
  queue().launch_walk(KernelName::add_product, pieces(count, AddProduct::threads), add);
}

void launch_put_product(const PutProductKernel::Args& args) {
  const std::size_t count = args.shape.rows * args.shape.columns;
  if (count == 0) return;
  const PutProductArgs put{factored(args.shape), args.left, args.right, args.out, args.divisor};
  queue().launch_walk(value_kernel(KernelName::put_product_f16, args.type),
                      pieces(count, PutProduct<float>::threads), put);
}

void launch_encode_indices(const EncodeIndicesKernel::Args& args) {
  const std::size_t tiles = pieces(args.span, IndexForm::elements);
  if (tiles == 0) {
    constexpr std::size_t nothing = 0;
    return store_words(reinterpret_cast<std::byte*>(args.written), &nothing, 1);
  }
  const EncodeArgs encode{args.indices, args.count,   args.span,
                          args.out,     args.written, workspace_for(tiles).state,
                          tiles,        args.first};
  queue().launch(KernelName::encode_indices, tiles, encode);
}

void launch_decode_indices(const DecodeIndicesKernel::Args& args) {
  const std::size_t blocks = pieces(args.span, IndexForm::elements);
  const Tiles work = workspace_for(1, index_heads_bytes(blocks));
  const DecodeArgs decode{args.coded,
                          args.bytes,
                          args.span,
                          args.indices,
                          args.capacity,
                          reinterpret_cast<DecodedIndices*>(args.result),
                          reinterpret_cast<IndexHeads*>(work.more),
                          work.state,
                          blocks,
                          args.first};
  queue().launch(KernelName::find_index_heads, 1, decode);
  if (blocks > 0) queue().launch(KernelName::decode_indices, blocks, decode);
}

}  // namespace pith::cuda
