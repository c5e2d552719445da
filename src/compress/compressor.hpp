// A compressor: its spec, and the state of the one vector that it serves.
//
// Not thread-safe; during a call the thread that drives the call's engine uses the state. claim()
// tells whether a call holds it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "compress/accumulator.hpp"
#include "compress/added_ranges.hpp"
#include "compress/momentum/held_back.hpp"
#include "compress/momentum/velocity.hpp"
#include "compress/pair_list.hpp"
#include "compress/scheme_state.hpp"
#include "compress/spec.hpp"
#include "compress/stats.hpp"
#include "core/compute.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith {

// A call's gradient. Null: zero. The accumulator's address: the caller has already added the
// gradient in place.
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

  // With density=auto its density and form, of `auto` its scheme, too, are those of the present
  // call, or of the last one.
  const Spec& spec() const { return spec_; }
  std::size_t count() const { return count_; }
  DType type() const { return type_; }
  bool shaped() const { return shaped_; }
  // The error for which a call of this shape would be refused. Changes nothing.
  Error check(std::size_t count, DType type) const;
  // Fixes the shape, by the first call or by the first use of the accumulator. Precondition:
  // check() found nothing.
  void shape(std::size_t count, DType type);
  float* accumulator() const { return accumulator_.data(); }
  // The accumulator for a caller that adds to it in place; its address is fixed from then on.
  float* lend_accumulator(Compute& host);
  // Between calls: moves accumulators and their content to the device; null: to the host. An error
  // if the accumulator was lent.
  Error move_to(DeviceVectors* device);
  // Only the check.
  Error check_move_to(const DeviceVectors* device) const;
  // Allocates in advance for a call that delivers the whole accumulator. Precondition: shaped.
  void make_room_for_whole();
  // The accumulator's content counts as zero.
  bool residual_is_zero() const { return spent_; }
  // Precondition: shaped.
  double residual_squares(Compute& host) const;
  // Writes count() float32, to any address.
  void copy_residual(std::byte* out) const;
  // Swaps the accumulator's memory, and whether it counts as zero, with the arguments.
  void exchange_memory(Accumulator& memory, bool& is_zero);

  // --- hierarchy=host: the part this rank keeps for its host, if any; see host_slice.hpp ---

  HostSlice* slice() const { return slice_.get(); }
  HostSlice& make_slice(std::size_t begin, std::size_t count);
  // Adds the slice's residual to the accumulator. Between calls of different communicators, or in a
  // first call before the passes.
  void drop_slice(Compute& host);

  // --- ownership ---

  // False if another thread or a call that has not ended holds it.
  bool claim() { return !claimed_.exchange(true, std::memory_order_acquire); }
  bool is_claimed() const { return claimed_.load(std::memory_order_acquire); }
  void release() { claimed_.store(false, std::memory_order_release); }
  // The communicator of its calls, which are numbered there; set by the owner.
  std::weak_ptr<void> binding;
  // Earlier calls belong to another communicator: they can no longer be undone, and the layout of
  // hosts is unknown.
  void forget_delivered();

  // --- a call ---

  // Starts the call with this number; nothing of the gradient has been added yet. May throw
  // bad_alloc; fail() is valid even then. `device`: the queue of the call's kernels if the
  // accumulator is on a device; null: the host.
  void begin(std::uint32_t call, const Gradient& gradient, Compute* device = nullptr);
  const Gradient& gradient() const { return gradient_; }
  // The arguments of a pass that adds this call's gradient in a range. Ranges come in any order,
  // each once, so that after a failure the missing ones are known.
  AccumulateKernel::Args pass(std::size_t begin, std::size_t count, PassResult& result);
  // Room for passes that start at `apart` separate places, so that pass() does not allocate.
  void expect_ranges(std::size_t apart) { added_.reserve(apart); }
  // The arguments of a pass over a range for callers that only look at the data. Without a result.
  AccumulateKernel::Args args_of(std::size_t begin, std::size_t count) const;
  // Adds what has not been added yet.
  void add_rest(Compute& host);
  // Adds the whole gradient at once. count_added() adds its result to the statistics, after the
  // fence.
  Fence start_adding(Compute& host);
  void count_added();
  // Returns what this call has taken as pairs or factors to the accumulator. Idempotent.
  void return_taken(Compute& host);
  // Where a call that keeps a rest writes, for every element, what is to be added to the
  // accumulator if it succeeds: minus what it sends. Precondition: make_room_for_whole().
  float* changes() const { return changes_.data(); }
  // What this call has taken out of the accumulator as factors; with a layout it counts.
  LowRankTaken& taken_factors() { return taken_[0].factors; }
  // This call delivers the whole accumulator, or what the changes say, and no pairs.
  void take_all();
  bool takes_all() const { return taken_[0].whole; }
  // Adds what was lost by rounding this call's sums (float32) to the accumulator, unless the call
  // is undone.
  void keep_losses(Compute& host, const SparseList& losses);
  // After an error: the accumulator becomes old residual plus gradient, so nothing is lost, and the
  // scheme's state is that before the call.
  void fail(Compute& host);
  // After success: completes the statistics and advances the step.
  void end(Compute& host);
  // Undoes calls after `completed`, which not all ranks have completed: what they delivered
  // returns, and the state is that before them. Covers the last two calls, failed ones included.
  void return_after(Compute& host, std::uint32_t completed);

  // Resets everything to the initial state.
  void reset();
  void scale(Compute& host, float factor);

  // --- saving ---

  double scale() const { return scale_; }
  // Neither called nor loaded since creation or reset.
  bool is_new() const { return is_new_; }
  // In a call, or between calls. With density=auto the spec follows.
  void set_state(const SchemeState& state);
  // Makes a new compressor continue from a saved state.
  void adopt(const SchemeState& state, double scale);
  // Adds `count()` float32, at any address, to the residual, and to the velocity unless null.
  void add_saved(Compute& host, const std::byte* residual, const std::byte* of_velocity);

  // Hash of what all ranks must agree on in a call.
  std::uint64_t digest() const;

  CompressorStats stats;
  // For statistics: how many elements this rank elected among those taken. Reset by begin().
  static constexpr std::size_t all = ~std::size_t{0};
  std::size_t elected = all;
  // Of a scheme that corrects momentum, from shape() on; else null. Calls correct it before any
  // pass, since that is what the passes add.
  std::unique_ptr<Velocity> velocity;
  // Of a spec that filters the residual, from shape() on; else null. Calls hold it back before any
  // pass.
  std::unique_ptr<HeldBack> held_back;
  // Counts the magnitudes that the passes find, if not null. The owner clears it before freeing it.
  MagnitudeHistogram* histogram = nullptr;
  // The pairs that this call takes out of the accumulator, with values as sent. Kept until known to
  // be delivered: after a failure they return, so that no gradient is lost.
  PairList& taken() { return taken_[0].pairs; }
  // Lists received from other ranks in this call, by rank; room for at least `ranks` lists.
  std::vector<PairList>& received(std::size_t ranks) {
    if (received_.size() < ranks) received_.resize(ranks);
    return received_;
  }

 private:
  using Part = AddedRanges::Part;
  struct Taken {
    std::uint32_t call = 0;
    bool delivered = false;  // the call has succeeded
    bool whole = false;      // took from all elements; kept in delivered_
    bool rest = false;       // in which case there are changes in delivered_
    float factor = 1;        // product of scale() calls since then
    bool knows_before = false;
    SchemeState before;
    PairList pairs;
    PairList losses;  // negated
    PairList left;    // of the velocity
    LowRankTaken factors;
  };
  void give_back(Compute& host, Taken& taken);
  void give_back(Compute& host, float* to, PairList& pairs, float factor);
  void add_pairs(Compute& host, float* to, const SparseList& list, DType type);
  void deliver_whole(Compute& host);
  void clear_spent(Compute& host);
  // The kernels' memory, and memory that both sides can access; `host` is the caller's.
  Compute& vectors(Compute& host) const {
    return queue_ ? *queue_ : (device_ ? device_->compute() : host);
  }
  Compute& reachable(Compute& host) const { return device_ && !queue_ ? device_->pinned() : host; }

  Spec spec_;                        // with density=auto as the present call's
  const std::uint64_t spec_digest_;  // cached: needs the spec's text
  const bool notes_changes_;         // some call that the spec allows does
  bool shaped_ = false;
  std::size_t count_ = 0;
  DType type_ = DType::f32;
  Accumulator accumulator_;
  DeviceVectors* device_ = nullptr;  // where accumulators are; null: on the host
  Compute* queue_ = nullptr;         // of a call on that device
  struct {                           // result of start_adding()
    PassResult own;
    Scratch memory;  // the same on a device
    Fence fence;     // of the pass that writes it
    bool counts = false;
  } found_;
  double scale_ = 1;
  Gradient gradient_;
  AddedRanges added_;  // of this call
  bool in_call_ = false;
  bool spent_ = false;  // the accumulator's content counts as zero
  bool lent_ = false;
  bool is_new_ = true;
  std::atomic<bool> claimed_{false};
  Accumulator delivered_;       // what the last call that took from all elements delivered
  Accumulator changes_;         // of the present call
  std::array<Taken, 2> taken_;  // of the current or last call, and of the one before
  std::vector<PairList> received_;
  std::unique_ptr<HostSlice> slice_;
};

}  // namespace pith
