#include "collectives/sparse/density_agreement.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>

#include "collectives/chooser.hpp"
#include "collectives/registry.hpp"
#include "collectives/sparse/coding_loss.hpp"
#include "compress/election.hpp"
#include "compress/scheme.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith {

namespace {

// No exchange uses lanes from this one on, nor does the sum of a dense call.
constexpr std::uint16_t first_lane = 0x4000;

struct Sample {
  explicit Sample(Call& call)
      : memory(call.host_compute(), sizeof(MagnitudeHistogram)),
        histogram(*new (memory.bytes().data) MagnitudeHistogram) {}
  Sample(const Sample&) = delete;

  // Of the `density` largest elements in the squares of all.
  double gain(double density) const {
    const double all = largest_squares(histogram, elements);
    return all > 0 ? largest_squares(histogram, elected_of(density, elements)) / all : 1;
  }

  // Of what a form loses in the squares of what was coded.
  double loss(std::size_t form) const { return squares > 0 ? lost[form] / squares : 0; }

  // Of all elements, of which there are `count`.
  double all_squares(std::size_t count) const {
    return elements > 0 ? largest_squares(histogram, elements) * double(count) / double(elements)
                        : 0;
  }

  Scratch memory;
  MagnitudeHistogram& histogram;
  std::size_t elements = 0;
  std::array<double, coded_form_count> lost{};
  double squares = 0;
};

// Codes some blocks, in every form that the spec may choose.
void add_losses(Compute& host, const Spec& spec, std::span<const float> magnitudes,
                Sample& sample) {
  constexpr std::size_t block = 512;
  constexpr std::size_t most_blocks = 32;
  if (!spec.quantises() && !spec.chooses_scheme()) return;
  const std::size_t blocks = chunks_in(magnitudes.size(), block);
  const std::size_t stride = chunks_in(blocks, most_blocks) * block;
  // A block stands for as many as it is one of.
  const double weight = double(stride) / double(block);
  for (std::size_t at = 0; at < magnitudes.size(); at += stride) {
    const auto values = magnitudes.subspan(at, std::min(block, magnitudes.size() - at));
    for (const float one : values) sample.squares += weight * double(one) * double(one);
    for (std::size_t i = 0; i < coded_form_count; ++i) {
      if (!spec.may_take(all_forms[i])) continue;
      const Coding coding = *coding_of(in_form(spec, all_forms[i]));
      sample.lost[i] += weight * squares_lost(host, coding, values);
    }
  }
}

// A line in 64, but enough of them in all, evenly from all tensors.
double share_of(std::size_t elements) {
  constexpr double seldom = 1.0 / 64;
  constexpr double least_elements = 1 << 16;
  return std::clamp(least_elements / static_cast<double>(std::max<std::size_t>(elements, 1)),
                    seldom, 1.0);
}

Task<Error> add_tensor(Call& call, const SparseCall& args, const CompressedTensor& tensor,
                       double share, Sample& sample) {
  const std::size_t all = tensor.count / SampleKernel::line;
  if (all == 0) co_return Error();
  const auto wanted = static_cast<std::size_t>(share * static_cast<double>(all));
  const std::size_t lines = std::max<std::size_t>(wanted, 1);
  const std::size_t elements = lines * SampleKernel::line;
  const VectorQueue queue = args.queue(call);
  const Scratch memory(queue.host(), elements * sizeof(float));
  auto* const magnitudes = reinterpret_cast<float*>(memory.bytes().data);
  co_await queue.until(queue.run<SampleKernel>(
      {tensor.compressor->args_of(0, tensor.count), lines, tensor.count / lines, magnitudes}));
  call.host_compute().run<HistogramKernel>({magnitudes, elements, &sample.histogram});
  add_losses(call.host_compute(), args.spec(), {magnitudes, elements}, sample);
  sample.elements += elements;
  co_return Error();
}

// By the call before, of its squares; negative: not known. `present`: of this call, which stands
// for that one where not all of it was read. Who has nothing leaves it to the others to say.
double share_sent(const CallBefore& before, double present) {
  if (!before.sent_is_known) return -1;
  const double squares = std::isnan(before.squares_all) ? present : before.squares_all;
  return squares > 0 ? std::min(before.squares_sent / squares, 1.0) : 1;
}

// What all ranks take the least of.
struct Facts {
  std::array<double, most_candidates> gains{};
  std::array<double, coded_form_count> negative_losses{};
  double sent = 0;
  double negative_between_s = 0;
  double negative_last_s = 0;
};

struct BypassMinima {
  double negative_seconds = 0;
  double on_host = 1;
};

template <class Facts>
Task<Error> take_least(Call& call, Facts& facts) {
  static_assert(sizeof(Facts) % sizeof(double) == 0);
  Call part(call, first_lane);
  CollectiveArgs args;
  args.send = args.recv = {reinterpret_cast<std::byte*>(&facts), sizeof facts};
  args.count = sizeof facts / sizeof(double);
  args.type = DType::f64;
  args.op = Op::min;
  co_return co_await allreduce_recursive_doubling(part, args);
}

// As agreed in `step` of the first tensor: others have made fewer calls, or more. The forecast is
// of the k-th magnitude of another k.
void adapt(Compressor& compressor, const DensityControl& agreed, std::uint64_t step) {
  const Spec& before = compressor.spec();
  if (agreed.density != before.density || agreed.form != before.form) compressor.forecast = {};
  // What was learned of another scheme's calls may be of long ago.
  if (before.chooses_scheme() && agreed.form != before.form) compressor.exdyna = {};
  compressor.density_control = agreed;
  compressor.density_control.next = compressor.step + (std::max(agreed.next, step) - step);
  compressor.density_control.probed =
      compressor.step - std::min(step - agreed.probed, compressor.step);
  compressor.set_state(compressor);  // in place: its spec follows
}

}  // namespace

Task<Error> agree_on_density(Call& call, const SparseCall& args, CallBefore before) {
  std::size_t all = 0;
  for (const CompressedTensor& tensor : args.tensors) all += tensor.count;
  Sample sample(call);
  for (const CompressedTensor& tensor : args.tensors) {
    Error error = co_await add_tensor(call, args, tensor, share_of(all), sample);
    if (error) co_return error;
  }
  Facts least;
  const Candidates all_densities = candidates_of(args.spec());
  for (std::size_t i = 0; i < all_densities.count; ++i) {
    least.gains[i] = sample.gain(all_densities[i]);
  }
  for (std::size_t i = 0; i < coded_form_count; ++i) least.negative_losses[i] = -sample.loss(i);
  least.sent = share_sent(before, sample.all_squares(all));
  least.negative_between_s = -before.between_s;
  least.negative_last_s = -before.took_s;
  Error error = co_await take_least(call, least);
  if (error) co_return error;
  const std::uint64_t step = args.tensors[0].compressor->step;
  DensityControl control = args.tensors[0].compressor->density_control;
  DensityFacts facts;
  facts.step = step;
  facts.gains = least.gains;
  std::ranges::transform(least.negative_losses, facts.losses.begin(), std::negate());
  facts.sent = least.sent;
  facts.between_s = -least.negative_between_s;
  facts.last_s = -least.negative_last_s;
  call.chooser().adapt_density(args.spec(), all, facts, control);
  for (const CompressedTensor& tensor : args.tensors) adapt(*tensor.compressor, control, step);
  co_return error;
}

void share_density(const SparseCall& args) {
  const std::uint64_t step = args.tensors[0].compressor->step;
  const DensityControl control = args.tensors[0].compressor->density_control;
  for (const CompressedTensor& tensor : args.tensors) {
    const Spec& own = tensor.compressor->spec();
    if (own.density != args.spec().density || own.form != args.spec().form) {
      adapt(*tensor.compressor, control, step);
    }
  }
}

// A time of another step is of a call that was undone.
Task<Error> agree_on_bypass(Call& call, const SparseCall& args, CompressorStats::Timed last) {
  Compressor& first = *args.tensors[0].compressor;
  BypassControl& control = first.bypass_control;
  BypassMinima least;
  if (last.step == control.timed) least.negative_seconds = -last.seconds;
  least.on_host = args.device ? 0 : 1;
  Error error = co_await take_least(call, least);
  if (error) co_return error;
  call.chooser().adapt_bypass(args.spec(),
                              {first.step, -least.negative_seconds, least.on_host == 0}, control);
  co_return error;
}

}  // namespace pith
