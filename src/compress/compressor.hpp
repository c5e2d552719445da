// A compressor: its spec, and the state of the one vector that it serves.
//
// Not thread-safe; while a call runs, whoever drives its engine uses the state. claim() tells
// whether one does.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "compress/accumulator.hpp"
#include "compress/added_ranges.hpp"
#include "compress/pair_list.hpp"
#include "compress/scheme_state.hpp"
#include "compress/spec.hpp"
#include "compress/stats.hpp"
#include "core/compute.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith {

// One call's gradient. Null: zeros. The accumulator itself: added to in place by the caller.
struct Gradient {
  const std::byte* data = nullptr;
  DType type = DType::f32;
};

class HostSlice;

class Compressor : public SchemeState {
 public:
  static Expected<std::unique_ptr<Compressor>> create(std::string_view text);
  explicit Compressor(const Spec& spec);
  ~Compressor();

  const Spec& spec() const { return spec_; }
  std::size_t count() const { return count_; }
  DType type() const { return type_; }
  bool shaped() const { return shaped_; }
  // What a call of this shape would be refused for. Changes nothing.
  Error check(std::size_t count, DType type) const;
  // The first call, or its accumulator, decides. Precondition: check() found nothing.
  void shape(std::size_t count, DType type);
  float* accumulator() const { return accumulator_.data(); }
  // The accumulator for a caller that adds to it in place: it stays where it is from now on.
  float* lend_accumulator(Compute& host);
  // Between calls: accumulators lie there from now on, with what they hold; null: on the host. An
  // error where one was lent.
  Error move_to(DeviceVectors* device);
  // That error alone.
  Error check_move_to(const DeviceVectors* device) const;
  // So that a call that delivers all of the accumulator allocates nothing. Precondition: shaped.
  void make_room_for_whole();
  // Nothing is left over: the accumulator's content counts as zero.
  bool residual_is_zero() const { return spent_; }
  // Precondition: shaped.
  double residual_squares(Compute& host) const;
  // count() float32, at any address.
  void copy_residual(std::byte* out) const;
  // This memory becomes the accumulator, and the other way round; likewise whether it counts as
  // zero.
  void exchange_memory(Accumulator& memory, bool& is_zero);

  // --- hierarchy=host: what this rank keeps for its host, if anything; see host_slice.hpp ---

  HostSlice* slice() const { return slice_.get(); }
  HostSlice& make_slice(std::size_t begin, std::size_t count);
  // What it keeps goes to the accumulator. Between the calls of two communicators, or in a first
  // call before the passes.
  void drop_slice(Compute& host);

  // --- who uses it ---

  // False: a call that has not ended, or another thread, holds it.
  bool claim() { return !claimed_.exchange(true, std::memory_order_acquire); }
  bool is_claimed() const { return claimed_.load(std::memory_order_acquire); }
  void release() { claimed_.store(false, std::memory_order_release); }
  // The communicator of its calls, as its owner names it. Numbers of calls are that one's.
  std::weak_ptr<void> binding;
  // Calls so far were another communicator's: none can be returned, and its hosts are forgotten.
  void forget_delivered();

  // --- a call ---

  // Numbers the call; nothing of the gradient has been added yet. Where memory runs out it throws,
  // and fail() is right all the same. `device`: the queue of the call's kernels, where the
  // accumulator lies on a device; null: the host's.
  void begin(std::uint32_t call, const Gradient& gradient, Compute* device = nullptr);
  const Gradient& gradient() const { return gradient_; }
  // The arguments of a pass over a range that adds this call's gradient to the accumulator. Ranges
  // come in any order, each once: what is left is known after a failure.
  AccumulateKernel::Args pass(std::size_t begin, std::size_t count, PassResult& result);
  // Who begins in more places than one says in how many: pass() must not run out of memory.
  void expect_ranges(std::size_t apart) { added_.reserve(apart); }
  // Those of a pass over all of it that is not made: for who only looks. Without a result.
  AccumulateKernel::Args whole_pass() const { return args_of(0, count_); }
  // All that has not been added yet.
  void add_rest(Compute& host);
  // All of the gradient at once: what it has found counts once the fence has been reached.
  Fence start_adding(Compute& host);
  void count_added();
  // The pairs taken by this call go back to the accumulator. Idempotent.
  void return_taken(Compute& host);
  // This call delivers all of the accumulator, and no pairs.
  void take_all();
  // What rounding this call's sums lost, in float32: added to the accumulator, for as long as the
  // call is not undone.
  void keep_losses(Compute& host, const SparseList& losses);
  // After an error: the accumulator holds old residual plus gradient, nothing is lost, and the
  // state of the scheme is that before the call.
  void fail(Compute& host);
  // After success: completes the statistics; the next call is another step.
  void end(Compute& host);
  // Calls after `completed` were not completed by all: what they delivered goes back, and the
  // state is that before them. Known of the last two, of which a failed one counts as the second.
  void return_after(Compute& host, std::uint32_t completed);

  // Everything back to the beginning.
  void reset();
  void scale(Compute& host, float factor);

  // --- saving ---

  double scale() const { return scale_; }
  // Neither called nor loaded since the beginning.
  bool is_new() const { return is_new_; }
  // A new one goes on where another one was.
  void adopt(const SchemeState& state, double scale);
  // Adds `count()` float32, at any address, to the residual.
  void add_residual(Compute& host, const std::byte* residual);

  // What all ranks must agree on in a call.
  std::uint64_t digest() const;

  CompressorStats stats;
  // Of one call, see begin(): how many this rank elected of what it takes.
  static constexpr std::size_t all = ~std::size_t{0};
  std::size_t elected = all;
  // Counts what the passes find, if not null. Whoever sets it clears it before the memory goes.
  MagnitudeHistogram* histogram = nullptr;
  // What this call takes out of the accumulator, with its values as they are sent. Kept until it is
  // known to have been delivered: after a failure it goes back, so that no gradient is lost.
  PairList& taken() { return taken_[0].pairs; }
  // What came from other ranks in this call, by rank; as many lists as were asked for before.
  std::vector<PairList>& received(std::size_t ranks) {
    if (received_.size() < ranks) received_.resize(ranks);
    return received_;
  }

 private:
  using Part = AddedRanges::Part;
  struct Taken {
    std::uint32_t call = 0;
    bool delivered = false;  // the call has ended well
    bool whole = false;      // all of the accumulator, kept in delivered_
    float factor = 1;        // of the scale since then
    bool knows_before = false;
    SchemeState before;
    PairList pairs;
    PairList losses;  // negative
  };
  void give_back(Compute& host, Taken& taken);
  void give_back(Compute& host, PairList& pairs, float factor);
  void add_pairs(Compute& host, const SparseList& list, DType type);
  void add_range(Compute& host, Part range, const std::byte* values, bool fresh);
  void deliver_whole(Compute& host);
  void clear_spent(Compute& host);
  void count_in(const PassResult& found);
  AccumulateKernel::Args args_of(std::size_t begin, std::size_t count) const;
  SchemeState& state() { return *this; }
  // Who works on accumulators, and memory that both sides reach; `host` is the caller's.
  Compute& vectors(Compute& host) const {
    return queue_ ? *queue_ : (device_ ? device_->compute() : host);
  }
  Compute& reachable(Compute& host) const { return device_ && !queue_ ? device_->pinned() : host; }

  const Spec spec_;
  const std::uint64_t spec_digest_;  // takes a text to find
  bool shaped_ = false;
  std::size_t count_ = 0;
  DType type_ = DType::f32;
  Accumulator accumulator_;
  DeviceVectors* device_ = nullptr;  // where accumulators lie; null: on the host
  Compute* queue_ = nullptr;         // of a call that runs on that device
  PassResult found_;                 // of start_adding()
  Scratch found_memory_;             // the same where a device writes it
  Fence found_fence_;                // of the pass that writes there
  bool found_counts_ = false;
  double scale_ = 1;
  Gradient gradient_;
  AddedRanges added_;  // of this call's gradient
  bool in_call_ = false;
  bool spent_ = false;  // what the accumulator holds counts as zero
  bool lent_ = false;
  bool is_new_ = true;
  std::atomic<bool> claimed_{false};
  Accumulator delivered_;       // what the last whole call delivered
  std::array<Taken, 2> taken_;  // of this call or the last one, and of the one before
  std::vector<PairList> received_;
  std::unique_ptr<HostSlice> slice_;
};

}  // namespace pith
