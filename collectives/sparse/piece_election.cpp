#include "collectives/sparse/piece_election.hpp"

#include <algorithm>
#include <bit>

#include "collectives/lists/parcels.hpp"
#include "collectives/patterns.hpp"
#include "collectives/scratch_span.hpp"
#include "core/clock.hpp"

namespace pith {

namespace {

// A lower bound of the k-th largest magnitude of a piece, from its histogram. `found`: the number
// of elements that are not below it.
float floor_of(const MagnitudeHistogram& histogram, const DeftPiece& piece, std::size_t& found) {
  std::size_t bin = MagnitudeHistogram::bins;
  found = 0;
  while (bin > 0 && found < piece.k) found += histogram.counts[--bin];
  return std::bit_cast<float>(static_cast<std::uint32_t>(bin) << MagnitudeHistogram::shift);
}

}  // namespace

PieceElection::PieceElection(Call& call, const SparseCall& args, Compressor& compressor,
                             const DeftPiece& piece)
    : call_(call),
      compressor_(compressor),
      piece_(piece),
      at_once_(elements_at_once(args)),
      queue_(args.queue(call)),
      passed_(queue_),
      smallest_(queue_),
      squares_(queue_) {}

Task<Error> PieceElection::run() {
  const Scratch counts(queue_.host(), sizeof(MagnitudeHistogram));
  auto& histogram = *reinterpret_cast<MagnitudeHistogram*>(counts.bytes().data);
  call_.run<ZeroKernel>({counts.bytes().data, counts.bytes().size});
  Error error = co_await in_turns(&PieceElection::count_in, &histogram);
  if (error) co_return error;
  make_room(histogram);
  error = co_await in_turns(&PieceElection::select, nullptr);
  if (error) co_return error;
  const Stopwatch watch(compressor_.stats.select_seconds);
  count_ = std::min(piece_.k, selected_);
  co_await queue_.until(keep());
  co_return Error();
}

std::span<const std::uint32_t> PieceElection::indices() const {
  return span_of<std::uint32_t>(queue_.on_device() ? told_ : indices_, count_);
}

// Applies `look` to the piece part by part, and yields after each.
Task<Error> PieceElection::in_turns(Look look, MagnitudeHistogram* histogram) {
  for (Range left{piece_.begin, piece_.size}; left.size > 0;) {
    const Range part = take_front(left, at_once_);
    Error error = co_await (this->*look)(part, histogram);
    if (error) co_return error;
    if (!queue_.on_device()) co_await call_.turn();
  }
  co_return Error();
}

Task<Error> PieceElection::count_in(Range part, MagnitudeHistogram* histogram) {
  const Stopwatch watch(compressor_.stats.select_seconds);
  co_await queue_.until(
      queue_.run<HistogramKernel>({compressor_.accumulator() + part.begin, part.size, histogram}));
  co_return Error();
}

void PieceElection::make_room(const MagnitudeHistogram& histogram) {
  floor_ = floor_of(histogram, piece_, room_);
  const std::size_t bytes = std::max<std::size_t>(room_, 1) * sizeof(float);
  indices_ = Scratch(queue_.vectors(), bytes);
  values_ = Scratch(queue_.vectors(), bytes);
}

// Selected elements return to the accumulator at once, since memory may run out before the next
// part.
Task<Error> PieceElection::select(Range part, MagnitudeHistogram*) {
  const Stopwatch watch(compressor_.stats.select_seconds);
  float* const accumulator = compressor_.accumulator();
  std::uint32_t* const indices = span_of<std::uint32_t>(indices_, room_).data() + selected_;
  float* const values = span_of<float>(values_, room_).data() + selected_;
  const std::size_t room = room_ - selected_;
  co_await queue_.until(queue_.run<SelectKernel>(
      {{accumulator + part.begin, nullptr, DType::f32, part.size, false, &*passed_},
       floor_,
       static_cast<std::uint32_t>(part.begin),
       indices,
       values,
       room}));
  const std::size_t selected = std::min(passed_->selected, room);
  selected_ += selected;
  queue_.run<ReturnKernel>(
      {accumulator, indices, reinterpret_cast<const std::byte*>(values), selected, DType::f32});
  co_return Error();
}

Fence PieceElection::keep() {
  if (count_ == 0) return {};
  std::uint32_t* const indices = span_of<std::uint32_t>(indices_, room_).data();
  float* const values = span_of<float>(values_, room_).data();
  const Fence kept = queue_.run<KeepLargestKernel>(
      {indices, values, selected_, count_, nullptr, &*smallest_, &*squares_});
  if (!queue_.on_device()) return kept;
  const std::size_t bytes = count_ * sizeof(std::uint32_t);
  told_ = Scratch(queue_.host(), bytes);
  return queue_.run<CopyKernel>({told_.bytes().data, indices_.bytes().data, bytes});
}

}  // namespace pith
