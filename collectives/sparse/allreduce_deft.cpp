// DEFT: tensors are cut into pieces. Each rank elects exactly, in pieces that no other rank has in
// this step. The indices go to all ranks, which sum their values at all of them.
// [Yoon, Oh: DEFT, ICPP 2023]
//
//   every rank    adds its gradient, piece by piece, and notes the norms
//   rank t mod N  packs the pieces into N bins ----> all               (t: the step)
//   rank r        elects the k_i largest of each piece in bin (t + r) mod N
//                   \ indices to all
//   others          decode > take > sum > write
//
// A piece's k_i is the share of k that its norm has in all norms. Each rank computes it from its
// own norms (compress/deft/plan.hpp). In a group every tensor is a layer. The structure is that of
// ExDyna, with one round, since no element is certain to be elected before all norms are known.
//
// Cost: exdyna_cost.hpp, with a broadcast of the bins, 4 bytes a piece. Every rank reads all of its
// gradient for the norms, and its own bin twice more.
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "collectives/algorithm.hpp"
#include "collectives/lists/common_values.hpp"
#include "collectives/lists/index_message.hpp"
#include "collectives/lists/list_message.hpp"
#include "collectives/scratch_span.hpp"
#include "collectives/sparse/dense_result.hpp"
#include "collectives/sparse/dense_sum.hpp"
#include "collectives/sparse/notes.hpp"
#include "collectives/sparse/piece_election.hpp"
#include "collectives/sparse/take_values.hpp"
#include "collectives/strands.hpp"
#include "compress/deft/plan.hpp"
#include "core/clock.hpp"

namespace pith {

namespace {

constexpr std::uint16_t index_lane = 0;
constexpr std::uint16_t sum_lane = 2;  // and the next one
constexpr std::uint16_t bins_lanes = 4;
constexpr std::uint16_t dense_lanes = 128;

// The pieces of one call, and the rank that elects in each.
class Plan {
 public:
  Plan(Call& call, const SparseCall& args)
      : call_(call), args_(args), all_(elements_of(args.tensors)), size_(count_pieces()) {
    const std::size_t room = std::max<std::size_t>(size_, 1);
    pieces_ = Scratch(call.host_compute(), room * sizeof(DeftPiece));
    bins_ = Scratch(call.host_compute(), room * sizeof(std::uint32_t));
    lay_out();
  }

  std::span<DeftPiece> pieces() const { return span_of<DeftPiece>(pieces_, size_); }
  std::span<std::uint32_t> bins() const { return span_of<std::uint32_t>(bins_, size_); }
  Compressor& compressor(const DeftPiece& piece) const {
    return *args_.tensors[piece.tensor].compressor;
  }
  std::uint64_t step() const { return args_.tensors[0].compressor->step; }
  int packer() const {
    return call_.place_of(static_cast<int>(step() % static_cast<std::uint64_t>(call_.size())));
  }
  // Bins belong to the caller's ranks, not to places in the order (rank_order.hpp).
  std::size_t bin_of(std::size_t rank) const {
    const auto known = static_cast<std::size_t>(call_.rank_at(static_cast<int>(rank)));
    return (static_cast<std::size_t>(step() % ranks_of(call_)) + known) % ranks_of(call_);
  }
  std::size_t owner_of(const DeftPiece& piece) const {
    const std::size_t n = ranks_of(call_);
    const std::size_t known = (piece.bin + n - static_cast<std::size_t>(step() % n)) % n;
    return static_cast<std::size_t>(call_.place_of(static_cast<int>(known)));
  }
  // The elements of a tensor that a rank has elected, without values: one run for each of its
  // pieces.
  PairList& list(const DeftPiece& piece, std::size_t rank) const {
    return compressor(piece).received(ranks_of(call_))[rank];
  }
  // Computes the k of each piece from this rank's norms.
  void share() {
    const Scratch order(call_.host_compute(), bins_.bytes().size);
    share_deft(pieces(), elected_of(args_.spec().density, all_),
               span_of<std::uint32_t>(order, size_));
  }
  // Packs the bins of all ranks by this rank's norms.
  void pack() {
    const Scratch order(call_.host_compute(), bins_.bytes().size);
    const Scratch loads(call_.host_compute(), ranks_of(call_) * sizeof(double));
    pack_deft(pieces(), span_of<std::uint32_t>(order, size_),
              span_of<double>(loads, ranks_of(call_)));
    for (std::size_t i = 0; i < size_; ++i) bins()[i] = pieces()[i].bin;
  }
  // Takes over the packer's bins. False: they do not exist.
  bool take_bins() {
    for (std::size_t i = 0; i < size_; ++i) {
      const std::uint32_t bin = bins()[i];
      if (bin != DeftPiece::common && bin >= ranks_of(call_)) return false;
      pieces()[i].bin = bin;
    }
    return true;
  }

 private:
  std::size_t count_pieces() const {
    std::size_t n = 0;
    for (const CompressedTensor& tensor : args_.tensors) {
      n += deft_pieces(tensor.count, all_, ranks_of(call_));
    }
    return n;
  }
  void lay_out() {
    std::size_t next = 0;
    for (std::size_t t = 0; t < args_.tensors.size(); ++t) {
      const std::size_t count = args_.tensors[t].count;
      const auto parts = static_cast<int>(deft_pieces(count, all_, ranks_of(call_)));
      for (int i = 0; i < parts; ++i) {
        const Range range = block(count, parts, i);
        DeftPiece piece;
        piece.tensor = t;
        piece.begin = range.begin;
        piece.size = range.size;
        pieces()[next++] = piece;
      }
    }
  }

  Call& call_;
  const SparseCall& args_;
  std::size_t all_;
  std::size_t size_;
  Scratch pieces_;
  Scratch bins_;
};

// --- assigning pieces ---

// Adds the gradient in one piece; on the host in parts, with a yield after each.
Task<Error> add_piece(Call& call, const SparseCall& args, Compressor& compressor,
                      const DeftPiece& piece, PassResult& found) {
  for (Range left{piece.begin, piece.size}; left.size > 0;) {
    const Range part = take_front(left, elements_at_once(args));
    PassResult seen;
    {
      const Stopwatch watch(compressor.stats.select_seconds);
      args.queue(call).run<AccumulateKernel>(compressor.pass(part.begin, part.size, seen));
    }
    found.nonfinite += seen.nonfinite;
    found.squares += seen.squares;
    co_await call.turn();
  }
  co_return Error();
}

// Adds all gradients and computes the norms. A device reports once, after the last piece.
Task<Error> add_gradients(Call& call, const SparseCall& args, const Plan& plan) {
  const VectorQueue queue = args.queue(call);
  const std::span<DeftPiece> pieces = plan.pieces();
  const Scratch memory(queue.host(), std::max<std::size_t>(pieces.size(), 1) * sizeof(PassResult));
  const std::span<PassResult> found = span_of<PassResult>(memory, pieces.size());
  Fence last;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Compressor& compressor = plan.compressor(pieces[i]);
    found[i] = {};
    if (!queue.on_device()) {
      Error error = co_await add_piece(call, args, compressor, pieces[i], found[i]);
      if (error) co_return error;
      continue;
    }
    const Stopwatch watch(compressor.stats.select_seconds);
    last = queue.run<AccumulateKernel>(compressor.pass(pieces[i].begin, pieces[i].size, found[i]));
  }
  const Stopwatch watch(args.tensors[0].compressor->stats.select_seconds);
  co_await queue.until(last);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Compressor& compressor = plan.compressor(pieces[i]);
    compressor.stats.nonfinite += found[i].nonfinite;
    compressor.stats.squares_all += found[i].squares;
    pieces[i].norm = std::sqrt(found[i].squares);
  }
  co_return Error();
}

Task<Error> agree_on_bins(Call& call, const SparseCall& args, Plan& plan) {
  plan.share();
  if (call.rank() == plan.packer()) plan.pack();
  if (call.size() == 1 || plan.pieces().empty()) co_return Error();
  const std::span<std::uint32_t> bins = plan.bins();
  CollectiveArgs told;
  told.send = told.recv = {reinterpret_cast<std::byte*>(bins.data()), bins.size_bytes()};
  told.count = bins.size();
  told.type = DType::u32;
  told.root = plan.packer();
  Call part(call, bins_lanes);
  Error error = co_await find_algorithm(Collective::broadcast, "binomial")->run(part, told);
  if (error) co_return error;
  const bool packs = call.rank() == plan.packer();
  (packs ? args.traffic->sent : args.traffic->received) += bins.size_bytes();
  if (!plan.take_bins()) {
    co_return malformed(call, plan.packer(), "bins that do not exist");
  }
  co_return error;
}

// --- electing ---

// Elects in one piece, into a new run of this rank's list.
Task<Error> elect(Call& call, const SparseCall& args, const Plan& plan, DeftPiece& piece) {
  Compressor& compressor = plan.compressor(piece);
  PieceElection election(call, args, compressor, piece);
  Error error = co_await election.run();
  if (error) co_return error;
  const std::span<const std::uint32_t> indices = election.indices();
  const float smallest = election.smallest();
  float& threshold = compressor.stats.threshold;
  threshold = compressor.elected == Compressor::all ? smallest : std::min(threshold, smallest);
  if (compressor.elected == Compressor::all) compressor.elected = 0;
  compressor.elected += indices.size();
  PairList& list = plan.list(piece, static_cast<std::size_t>(call.rank()));
  list.reserve(indices.size());
  std::copy(indices.begin(), indices.end(), list.indices(list.count()));
  piece.run = list.runs();
  list.end_run(indices.size());
  co_return Error();
}

Task<Error> elect_own(Call& call, const SparseCall& args, const Plan& plan) {
  for (DeftPiece& piece : plan.pieces()) {
    if (piece.bin != plan.bin_of(static_cast<std::size_t>(call.rank()))) continue;
    Error error = co_await elect(call, args, plan, piece);
    if (error) co_return error;
  }
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.compressor->elected == Compressor::all) tensor.compressor->elected = 0;
  }
  co_return Error();
}

// --- sharing indices ---

// Upper bound of the bytes of a rank's message.
std::size_t most_bytes(const Plan& plan, std::size_t rank) {
  std::size_t bytes = 0;
  for (const DeftPiece& piece : plan.pieces()) {
    if (piece.bin == plan.bin_of(rank)) bytes += index_bytes(piece.size, piece.size);
  }
  return std::max<std::size_t>(bytes, 1);
}

ListMessage write_indices(Call& call, const SparseCall& args, const Plan& plan) {
  const auto rank = static_cast<std::size_t>(call.rank());
  ListMessage message;
  message.head = Scratch(call.compute(), most_bytes(plan, rank));
  IndexWriter writer(call, message.head.bytes().data);
  for (const DeftPiece& piece : plan.pieces()) {
    if (piece.bin != plan.bin_of(rank)) continue;
    writer.put({piece.begin, piece.size}, plan.list(piece, rank).run(piece.run), true);
  }
  message.head_bytes = writer.size();
  message.ready = writer.ready();
  args.traffic->sent += static_cast<std::uint64_t>(call.size() - 1) * message.head_bytes;
  return message;
}

// False: the message is malformed.
bool read_indices(Call& call, const Plan& plan, std::size_t rank, ConstBytes coded) {
  IndexReader reader(call, coded);
  for (DeftPiece& piece : plan.pieces()) {
    if (piece.bin != plan.bin_of(rank)) continue;
    PairList& list = plan.list(piece, rank);
    const std::size_t room = std::min(piece.size, reader.most());
    list.reserve(room);
    const Decoded decoded = reader.get({piece.begin, piece.size}, list.indices(list.count()), room);
    if (!decoded.valid) return false;
    piece.run = list.runs();
    list.end_run(decoded.count);
  }
  return reader.done();
}

Task<Error> receive_all(Call& call, const SparseCall& args, const Plan& plan) {
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    const auto rank = static_cast<std::size_t>(from);
    const Scratch memory(call.host_compute(), most_bytes(plan, rank));
    const Expected<std::size_t> came = co_await call.recv_some(from, index_lane, 0, memory.bytes());
    if (!came) co_return came.error();
    args.traffic->received += *came;
    if (!read_indices(call, plan, rank, {memory.bytes().data, *came})) {
      co_return malformed(call, from, "indices that cannot be read");
    }
  }
  co_return Error();
}

Task<Error> share_indices(Call& call, const SparseCall& args, const Plan& plan) {
  const ListMessage message = write_indices(call, args, plan);
  std::array<Task<Error>, 2> strands{send_lists_to_all(call, {0, index_lane, 0}, message),
                                     receive_all(call, args, plan)};
  co_return co_await when_all(strands);
}

// --- summing ---

// The number of a piece's elements that are sent.
std::size_t moved(const Plan& plan, const DeftPiece& piece) {
  if (piece.bin == DeftPiece::common) return piece.size;
  return plan.list(piece, plan.owner_of(piece)).run(piece.run).count;
}

std::size_t all_moved(const Plan& plan) {
  std::size_t all = 0;
  for (const DeftPiece& piece : plan.pieces()) all += moved(plan, piece);
  return all;
}

// Takes this rank's values at the indices of all ranks, in order: one run a tensor.
Task<Error> take(Call& call, const SparseCall& args, const Plan& plan, CommonValues& values) {
  auto piece = plan.pieces().begin();
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    if (args.tensors[t].count == 0) continue;
    Compressor& compressor = *args.tensors[t].compressor;
    PairList& taken = compressor.taken();
    const auto first = piece;
    std::size_t room = 0;
    for (; piece != plan.pieces().end() && piece->tensor == t; ++piece) room += moved(plan, *piece);
    taken.reserve(room);
    std::uint32_t* out = taken.indices();
    for (auto one = first; one != piece; ++one) {
      const std::size_t n = moved(plan, *one);
      if (one->bin == DeftPiece::common) {
        std::iota(out, out + n, static_cast<std::uint32_t>(one->begin));
      } else {
        std::copy_n(plan.list(*one, plan.owner_of(*one)).run(one->run).indices, n, out);
      }
      out += n;
    }
    double squares = 0;
    Error error = co_await take_values(call, args, compressor, room, squares);
    if (error) co_return error;
    values.append(taken.run(0));
  }
  co_return Error();
}

Task<Error> sum_taken(Call& call, const SparseCall& args, CommonValues& values) {
  if (args.spec().values == DType::f32 && args.spec().reduction != Reduction::direct) {
    if (call.size() == 1) co_return Error();
    co_return co_await sum_densely(call, args, values.values(), dense_lanes);
  }
  ValuePart part;
  ValueSum sum = values.sum_of(0, values.count(), part);
  sum.lane = sum_lane;
  co_return co_await sum_values(call, sum, *args.traffic);
}

// --- the result ---

// N max n_r / sum n_r, where n_r is the number of elements that rank r has elected.
double imbalance_of(const Call& call, const Plan& plan) {
  std::size_t all = 0;
  std::size_t most = 0;
  for (std::size_t rank = 0; rank < ranks_of(call); ++rank) {
    std::size_t own = 0;
    for (const DeftPiece& piece : plan.pieces()) {
      if (piece.bin == plan.bin_of(rank)) own += moved(plan, piece);
    }
    all += own;
    most = std::max(most, own);
  }
  return all == 0 ? 1 : double(most * ranks_of(call)) / double(all);
}

void tell(const Call& call, const SparseCall& args, const Plan& plan) {
  constexpr std::array<std::string_view, 3> names = {"deft_direct", "deft_ring", "deft_tree"};
  const bool directly = args.spec().values != DType::f32;
  const auto way = static_cast<std::size_t>(directly ? Reduction::direct : args.spec().reduction);
  const double imbalance = imbalance_of(call, plan);
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->stats.algorithm = names[way];
    tensor.compressor->stats.imbalance = imbalance;
  }
}

}  // namespace

Task<Error> allreduce_deft(Call& call, SparseCall args) {
  args.parcel = ~std::size_t{0};  // everything is one parcel
  Plan plan(call, args);
  Error error = co_await add_gradients(call, args, plan);
  if (error) co_return error;
  error = co_await agree_on_bins(call, args, plan);
  if (error) co_return error;
  error = co_await elect_own(call, args, plan);
  if (error) co_return error;
  error = co_await share_indices(call, args, plan);
  if (error) co_return error;

  const Notes notes(args.spec().values, call.size(), false);
  std::array<float, 1> note{};
  CommonValues values(call, args, all_moved(plan), notes.count());
  error = co_await take(call, args, plan, values);
  if (error) co_return error;
  notes.write(note, call.rank(), found_nonfinite(args), 0);
  values.append_notes(note);
  error = co_await sum_taken(call, args, values);
  if (error) co_return error;
  values.read_notes(note);
  tell(call, args, plan);
  if (Notes::nonfinite(note) && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
  } else {
    values.write_results();
  }
  co_return error;
}

}  // namespace pith
