// A compressor: its spec, and the state of the one vector that it serves.
//
// Not thread-safe; while a call runs, whoever drives its engine uses the state.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "compress/accumulator.hpp"
#include "compress/election.hpp"
#include "compress/pair_list.hpp"
#include "compress/spec.hpp"
#include "compress/stats.hpp"
#include "compress/threshold_forecast.hpp"
#include "core/compute.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith {

// One call's gradient. Null: zeros. The accumulator itself: added to in place by the caller.
struct Gradient {
  const std::byte* data = nullptr;
  DType type = DType::f32;
};

class Compressor {
 public:
  static Expected<std::unique_ptr<Compressor>> create(std::string_view text);
  explicit Compressor(const Spec& spec) : spec_(spec) {}

  const Spec& spec() const { return spec_; }
  std::size_t count() const { return count_; }
  DType type() const { return type_; }
  bool shaped() const { return shaped_; }
  // What a call of this shape would be refused for. Changes nothing.
  Error check(std::size_t count, DType type) const;
  // The first call, or its accumulator, decides. Precondition: check() found nothing.
  void shape(std::size_t count, DType type);
  float* accumulator() const { return accumulator_.data(); }

  // --- a call ---

  // Numbers the call; nothing of the gradient has been added yet.
  void begin(std::uint32_t call, const Gradient& gradient);
  const Gradient& gradient() const { return gradient_; }
  // The arguments of a pass over a range that adds this call's gradient to the accumulator. Ranges
  // come in circular order, each once: what is left is known after a failure.
  AccumulateKernel::Args pass(std::size_t begin, std::size_t count, PassResult& result);
  // All that has not been added yet.
  void add_rest(Compute& host);
  // The pairs taken by this call go back to the accumulator. Idempotent.
  void return_taken(Compute& host);
  // After an error: the accumulator holds old residual plus gradient, nothing is lost.
  void fail(Compute& host);
  // After success: completes the statistics; the next call is another step.
  void end(Compute& host);
  // Of calls that others may not have completed: the pairs of those after `completed` go back.
  void return_after(Compute& host, std::uint32_t completed);

  // Everything back to the beginning.
  void reset();
  void scale(Compute& host, float factor);

  // What all ranks must agree on in a call.
  std::uint64_t digest() const;

  // State of the schemes, for their algorithms.
  std::uint64_t step = 0;
  ThresholdForecast forecast;  // of the k-th magnitude (topk; ar-topk: of what this rank elected)
  SmoothedNorm raw_norm;       // of this rank's gradients (ar-topk: score=raw)
  Succession succession;       // of leaders (ar-topk: election=variance-lagged)
  CompressorStats stats;
  // Of one call, see begin(). What it takes was elected by another rank.
  bool follows = false;
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
  struct Part {
    std::size_t begin = 0;
    std::size_t count = 0;
  };
  struct Taken {
    std::uint32_t call = 0;
    PairList pairs;
  };
  void give_back(Compute& host, Taken& taken);

  const Spec spec_;
  bool shaped_ = false;
  std::size_t count_ = 0;
  DType type_ = DType::f32;
  Accumulator accumulator_;
  double scale_ = 1;
  Gradient gradient_;
  Part added_;  // of this call's gradient, circular
  bool in_call_ = false;
  std::array<Taken, 2> taken_;  // of this call or the last one, and of the one before
  std::vector<PairList> received_;
};

}  // namespace pith
