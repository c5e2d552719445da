#include "collectives/sparse/exclusive_election.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "collectives/lists/parcels.hpp"
#include "collectives/sparse/take_values.hpp"
#include "core/clock.hpp"

namespace pith {

namespace {

// The elements of one range above the threshold.
class Survivors {
 public:
  Survivors(Call& call, const SparseCall& args, Compressor& compressor, Range range)
      : call_(call),
        compressor_(compressor),
        range_(range),
        at_once_(elements_at_once(args)),
        queue_(args.queue(call)),
        found_(queue_) {}
  Survivors(const Survivors&) = delete;
  Survivors& operator=(const Survivors&) = delete;
  FrameArena& frame_arena() const { return call_.frame_arena(); }

  // They stay in the accumulator until all ranks' elections are known. If there are more than
  // expected, the range is read again.
  Task<Error> find() {
    const ExdynaControl& control = compressor_.exdyna;
    const std::size_t expected = 4 * control.k() / ranks_of(call_) + 1024;
    make_room(std::min(range_.size, expected));
    Error error = co_await look(control.own_is_added);
    if (error || count_ == all_) co_return error;
    make_room(all_);
    co_return co_await look(true);
  }
  // The fence to await; a device has been awaited already.
  Fence done() const { return queue_.on_device() ? Fence() : done_; }
  std::span<const float> values() const { return {floats(), count_}; }
  // Drops what is below the threshold, and all but the `most` largest.
  void keep(float threshold, std::size_t most) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (!(std::fabs(floats()[i]) >= threshold)) continue;
      indices()[kept] = indices()[i];
      floats()[kept++] = floats()[i];
    }
    count_ = std::min(kept, most);
    if (kept <= most || most == 0) return;
    float smallest = 0;
    double squares = 0;
    call_.run<KeepLargestKernel>({indices(), floats(), kept, most, nullptr, &smallest, &squares});
  }
  void move_to(PairList& list) const {
    list.reserve(count_);
    std::copy_n(indices(), count_, list.indices());
    list.end_run(count_);
  }

 private:
  // Lists as many elements as there is room for, and counts all; yields after every part. The
  // elements of a part return to the accumulator at once, since memory may run out before the next
  // part.
  Task<Error> look(bool is_added) {
    count_ = all_ = 0;
    for (Range left = range_; left.size > 0;) {
      const Range part = take_front(left, at_once_);
      Error error = co_await look_at(part, is_added);
      if (error) co_return error;
      if (left.size > 0) co_await call_.turn();
    }
    co_return Error();
  }
  Task<Error> look_at(Range part, bool is_added) {
    const Stopwatch watch(compressor_.stats.select_seconds);
    AccumulateKernel::Args pass{.accumulator = compressor_.accumulator() + part.begin,
                                .gradient = nullptr,
                                .type = DType::f32,
                                .count = part.size,
                                .fresh = false,
                                .result = &*found_};
    if (!is_added) pass = compressor_.pass(part.begin, part.size, *found_);
    co_await queue_.until(select(pass, part.begin));
    if (!is_added) {
      compressor_.stats.nonfinite += found_->nonfinite;
      compressor_.stats.squares_all += found_->squares;
    }
    all_ += found_->selected;
    const std::size_t before = std::exchange(count_, std::min(all_, room_));
    done_ = put_back(before);
    co_await queue_.until(done_);
    co_return Error();
  }
  void make_room(std::size_t room) {
    room_ = room;
    indices_ = Scratch(call_.compute(), std::max<std::size_t>(room, 1) * sizeof(std::uint32_t));
    values_ = Scratch(call_.compute(), std::max<std::size_t>(room, 1) * sizeof(float));
  }
  // Appends to the elements found so far.
  Fence select(const AccumulateKernel::Args& pass, std::size_t begin) const {
    return queue_.run<SelectKernel>({pass, compressor_.exdyna.threshold().counts(),
                                     static_cast<std::uint32_t>(begin), indices() + count_,
                                     floats() + count_, room_ - count_});
  }
  // Returns the elements from `first` on to the accumulator.
  Fence put_back(std::size_t first) const {
    return queue_.run<ReturnKernel>({compressor_.accumulator(), indices() + first,
                                     reinterpret_cast<const std::byte*>(floats() + first),
                                     count_ - first, DType::f32});
  }
  std::uint32_t* indices() const { return reinterpret_cast<std::uint32_t*>(indices_.bytes().data); }
  float* floats() const { return reinterpret_cast<float*>(values_.bytes().data); }

  Call& call_;
  Compressor& compressor_;
  const Range range_;
  const std::size_t at_once_;
  const VectorQueue queue_;
  const Answer<PassResult> found_;
  Scratch indices_;
  Scratch values_;
  std::size_t room_ = 0;
  std::size_t all_ = 0;
  std::size_t count_ = 0;
  Fence done_;
};

// How many elements of its partition a rank may still elect in this round. Each quarter of the
// rounds has a quarter of the rank's maximum, so that a threshold that is too low does not exclude
// the last elements. Finer shares, or shares of only a few elements, would cut into clusters.
std::size_t allowance(Call& call, const ExclusiveElection& election, Compressor& compressor,
                      std::size_t partition, std::size_t round) {
  const ExdynaControl& control = compressor.exdyna;
  if (control.has_dummy()) return control.most(partition);
  std::size_t elected = 0;
  for (std::size_t j = 0; j < round; ++j) {
    elected +=
        election.list(compressor, j, static_cast<std::size_t>(call.rank()), ranks_of(call)).count();
  }
  constexpr std::size_t few = 16;
  const std::size_t all = control.most(partition);
  const std::size_t shares = std::min<std::size_t>(election.rounds, 4);
  const std::size_t share = round * shares / election.rounds + 1;
  const std::size_t so_far = std::min(all, all * share / shares + few);
  return so_far > elected ? so_far - elected : 0;
}

}  // namespace

Task<Error> elect(Call& call, const ExclusiveElection& election, Compressor& compressor,
                  std::size_t round) {
  ExdynaControl& control = compressor.exdyna;
  const std::size_t partition = own_partition(call, compressor);
  Survivors survivors(call, election.args, compressor,
                      election.range(compressor, partition, round));
  Error error = co_await survivors.find();
  if (error) co_return error;
  co_await call.until(survivors.done());
  if (control.threshold().rule() == Rule::quantile) {
    control.own_levels.add(survivors.values(), control.threshold().elects());
  }
  survivors.keep(control.threshold().elects(),
                 allowance(call, election, compressor, partition, round));
  PairList& list =
      election.list(compressor, round, static_cast<std::size_t>(call.rank()), ranks_of(call));
  const std::size_t size = control.partition().size(partition);
  survivors.move_to(list);
  if (!control.has_dummy() || size == 0 || list.count() > 0) co_return error;
  list.begin(list.type());
  list.reserve(1);
  *list.indices() =
      static_cast<std::uint32_t>(control.partition().begin(partition) + compressor.step % size);
  list.end_run(1);
  co_return error;
}

}  // namespace pith
