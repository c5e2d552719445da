#include "collectives/compressed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>

#include "collectives/algorithm.hpp"
#include "collectives/chooser.hpp"
#include "collectives/compressed_check.hpp"
#include "collectives/hosts.hpp"
#include "collectives/lists/parcels.hpp"
#include "collectives/lists/result_writer.hpp"
#include "collectives/sparse/call_times.hpp"
#include "collectives/sparse/density_agreement.hpp"
#include "collectives/sparse/momentum/low_pass.hpp"
#include "collectives/sparse/momentum/momentum.hpp"
#include "collectives/strands.hpp"
#include "compress/gossip/choco_scheme.hpp"
#include "compress/low_rank/elected_rows.hpp"
#include "compress/low_rank/given_matrices.hpp"
#include "core/clock.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

// Every scheme names an exchange: checked by tests/collectives/test_schemes.cpp.
const SparseExchange& exchange_of(const Spec& spec) {
  const std::string_view name = exchange_name(spec);
  const auto all = exchanges();
  return *std::find_if(all.begin(), all.end(),
                       [&](const SparseExchange& exchange) { return exchange.name == name; });
}

// Whether the call sums inside hosts first, and hosts have several ranks.
bool is_by_host(const CallContext& context, const Spec& spec) {
  return spec.by_host && context.hosts && !context.hosts->alone();
}

Error out_of_memory() {
  return {Code::system, "out of memory at the beginning of a compressed call"};
}

// Begins all tensors. If memory runs out for one, the gradients of the others still count.
Error begin_all(std::span<CompressedTensor> tensors, std::uint32_t call, int ranks) {
  Error error;
  for (const CompressedTensor& tensor : tensors) {
    try {
      begin_tensor(tensor, call, ranks);
    } catch (const std::bad_alloc&) {
      error = out_of_memory();
    }
  }
  return error;
}

// A call on a device. `whole` works on the vectors; `lists`, a call on the host, has lists and
// messages, in memory that the device reaches.
struct DeviceCall {
  explicit DeviceCall(Call& call) : whole(call), context(call.context()) {
    context.compute = context.host;
    lists.emplace(context, call.number(), call.digest());
  }
  DeviceCall(const DeviceCall&) = delete;

  Call& whole;
  CallContext context;
  std::optional<Call> lists;
};

// Float32 in the messages of factors of all tensors.
std::size_t factor_elements(const SparseCall& args) {
  std::size_t all = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    const LowRankLayout& layout = *tensor.compressor->low_rank.layout;
    all += layout.left_count() + layout.right_count();
  }
  return all;
}

// By the first tensor's earlier calls, which stand for the group. That of a way that was timed is
// what it took.
void predict(const Call& call, const SparseCall& args, bool dense) {
  const Compressor& first = *args.tensors[0].compressor;
  const Spec& spec = args.spec();
  const Hosts* const hosts = is_by_host(call.context(), spec) ? call.context().hosts : nullptr;
  const LinkSums& link = spec.adapts() ? first.density_control.link : first.bypass_control.link;
  double seconds = first.bypass_control.seconds[dense ? 1 : 0];
  if (seconds == 0) {
    // Which are summed densely.
    const bool factors = !dense && rank_of(spec) > 0 && !draws_factors(spec);
    const std::size_t all = factors ? factor_elements(args) : elements_of(args.tensors);
    seconds = call.chooser().predicted_seconds(spec, all, dense || factors, hosts, link);
  }
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->stats.predicted_seconds = seconds;
  }
}

Task<Error> run_scheme(Call& call, const SparseCall& args, bool dense) {
  predict(call, args, dense);
  if (dense) return allreduce_dense(call, args);
  return is_by_host(call.context(), args.spec()) ? allreduce_by_host(call, args)
                                                 : run_flat_scheme(call, args);
}

// Whether the call may be dense, if that is faster. A dense average is not what gossip gives.
bool may_bypass(const Spec& spec) { return spec.may_bypass && !spec.scheme->averages_parameters; }

// Whether measured times decide if the call is dense. They are kept by the first tensor.
bool is_measured(const Spec& spec) {
  return spec.sparse() && may_bypass(spec) && !spec.adapts() && !spec.by_host;
}

// Whether the call is made dense, but for measured times. Depends only on what ranks agree on.
bool is_dense(const CallContext& context, const Spec& spec, std::size_t all, std::uint64_t step) {
  if (exchange_of(spec).run == allreduce_dense || starts_dense(spec, step)) return true;
  const Hosts* const hosts = is_by_host(context, spec) ? context.hosts : nullptr;
  if (hosts && hosts->count() == 1) return true;
  if (spec.adapts()) return spec.adapted_to_dense();
  return (hosts || spec.sparse()) && may_bypass(spec) &&
         context.chooser->is_faster_dense(spec, all, hosts);
}

void share_traffic(const Traffic& traffic, std::span<CompressedTensor> tensors, std::size_t all) {
  for (const CompressedTensor& tensor : tensors) {
    const double share = all == 0 ? 0 : double(tensor.count) / double(all);
    CompressorStats& stats = tensor.compressor->stats;
    stats.bytes_sent = static_cast<std::uint64_t>(share * double(traffic.sent));
    stats.bytes_received = static_cast<std::uint64_t>(share * double(traffic.received));
  }
}

}  // namespace

// Lists of common indices go in one message, whose length and number of pairs have 32 bits. Lists
// that differ from rank to rank go in as many messages as they need.
Error check_lists(std::span<const CompressedTensor> tensors) {
  constexpr std::size_t most_pairs = (std::size_t{1} << 30) - 1;  // at four bytes a value
  constexpr std::size_t most_elements = std::size_t{1} << 34;     // at one bit an index
  std::size_t pairs = 0;
  std::size_t elements = 0;
  const auto elects_together = [](const Spec& one) { return one.sparse() && !elects_lists(one); };
  if (!any_form(tensors[0].compressor->spec(), elects_together)) return {};
  for (const CompressedTensor& tensor : tensors) {
    elements += tensor.count;
    if (tensor.count == 0) continue;
    pairs += most_elected(*tensor.compressor, tensor.count);
  }
  if (pairs <= most_pairs && elements <= most_elements) return {};
  const bool by_rows = sketch_of(tensors[0].compressor->spec()) > 0;
  return {Code::invalid_argument,
          fmt::format("{} pairs of {} elements would be in one message, expected at most {} of {}: "
                      "a lower density{}, or fewer tensors in a group",
                      pairs, elements, most_pairs, most_elements,
                      by_rows ? ", matrices of longer rows" : "")};
}

namespace {

// Of schemes whose vectors are parameters.
Error check_average(const CallContext& context, const CompressedTensor& tensor) {
  const std::string_view name = tensor.compressor->spec().scheme->name;
  const auto refuse = [&](std::string_view what, std::string_view expected) -> Error {
    return {Code::invalid_argument,
            fmt::format("{} averages parameters: {}, expected {}", name, what, expected)};
  };
  const auto* const lent = reinterpret_cast<const std::byte*>(tensor.compressor->accumulator());
  if (!tensor.average) return refuse("op is sum", "avg");
  if (tensor.sparse.count) return refuse("the result is sparse", "a dense one");
  if (tensor.count > 0 && (!tensor.send || tensor.send == lent)) {
    return refuse("send is NULL or the compressor's accumulator", "this rank's parameters");
  }
  const bool on_device = tensor.device || context.compute->kind() != MemoryKind::host;
  if (on_device) return refuse("memory is a device's", "the host's");
  if (!states_graph(tensor.compressor->spec())) return {};
  const auto& graph = tensor.compressor->gossip.graph;
  return graph ? graph->check(context.size)
               : refuse("no graph is stated", "its edges by pithCompressorSetGraph");
}

// Tensors of a group whose graphs are stated. All are sent along the same edges.
Error check_common_graph(std::span<const CompressedTensor> tensors) {
  const auto digest_of = [](const CompressedTensor& tensor) {
    return tensor.compressor->gossip.graph->digest();
  };
  for (const CompressedTensor& tensor : tensors) {
    if (digest_of(tensor) == digest_of(tensors[0])) continue;
    return {Code::invalid_argument,
            "compressors of a group have different graphs, expected the same edges in all"};
  }
  return {};
}

// Of schemes that decompose matrices, which only the host does.
Error check_decomposed(const CallContext& context, const CompressedTensor& tensor) {
  if (!tensor.device && context.compute->kind() == MemoryKind::host) return {};
  return {Code::invalid_argument,
          fmt::format("{} decomposes matrices: memory is a device's, expected the host's",
                      tensor.compressor->spec().scheme->name)};
}

}  // namespace

Error check_compressed_call(const CallContext& context, std::span<const CompressedTensor> tensors) {
  const Spec& spec = tensors[0].compressor->spec();
  if (spec.scheme->averages_parameters) {
    for (const CompressedTensor& tensor : tensors) {
      if (Error error = check_average(context, tensor)) return error;
    }
    if (states_graph(spec)) {
      if (Error error = check_common_graph(tensors)) return error;
    }
  }
  if (draws_factors(spec)) {
    for (const CompressedTensor& tensor : tensors) {
      if (Error error = check_decomposed(context, tensor)) return error;
    }
  }
  const std::uint64_t step = tensors[0].compressor->step;
  const bool stays_dense = !spec.adapts() && is_dense(context, spec, elements_of(tensors), step);
  return stays_dense ? Error() : check_lists(tensors);
}

void begin_tensor(const CompressedTensor& tensor, std::uint32_t call, int ranks) {
  Compressor& compressor = *tensor.compressor;
  compressor.shape(tensor.count, tensor.type);
  compressor.begin(call, {tensor.send, tensor.type}, tensor.device);
  compressor.stats.algorithm = compressor.spec().scheme->name;
  auto& layout = compressor.low_rank.layout;
  if (layout_rank_of(compressor.spec()) > 0 && !layout) {
    layout = std::make_shared<LowRankLayout>(unstated_layout(compressor.spec(), tensor.count));
  }
  for (PairList& list : compressor.received(static_cast<std::size_t>(ranks))) {
    list.begin(compressor.spec().values);
  }
}

Task<Error> run_flat_scheme(Call& call, SparseCall args) {
  return exchange_of(args.spec()).run(call, args);
}

void SparseCall::conclude(const CompressedTensor& tensor, ResultWriter& writer) const {
  CompressorStats& stats = tensor.compressor->stats;
  stats.selected_union = writer.count();
  const Error error = writer.finish();
  if (error && !*refused) *refused = error;
}

bool found_nonfinite(const SparseCall& args) {
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.compressor->stats.nonfinite > 0) return true;
  }
  return false;
}

void deliver_nan(Call& call, const SparseCall& args) {
  if (args.nan) *args.nan = true;
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->return_taken(call.host_compute());
    tensor.compressor->stats.told_nan = true;
    ResultWriter writer(call, tensor);
    writer.put_nan();
    args.conclude(tensor, writer);
  }
}

namespace {

std::size_t parcel_of(const SparseCall& args) {
  if (!args.spec().sparse()) return 0;
  return parcel_elements(elements_of(args.tensors), args.spec().density, args.chunk_bytes);
}

// With density=auto: now and then ranks agree first on the call's density. As below they then go on
// at the same time.
Task<Error> run_adapting(Call& call, SparseCall args, CallTimes& times) {
  const std::size_t all = elements_of(args.tensors);
  const Compressor& first = *args.tensors[0].compressor;
  if (adapts_density(first.step, first.density_control)) {
    Error error = co_await agree_on_density(call, args, times.before());
    if (error) co_return error;
    times.agreed(monotonic_ns());
  }
  share_density(args);
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->density_control.count = all;
    const Form form = args.spec().form;
    if (form != Form::none) tensor.compressor->stats.algorithm = name_of(form);
  }
  args.parcel = parcel_of(args);
  const bool dense = is_dense(call.context(), args.spec(), all, first.step);
  co_return co_await run_scheme(call, args, dense);
}

// Whether the call is made dense, as far as is known before it. Other groups have other times.
bool begin_choice(const Call& call, std::span<const CompressedTensor> tensors, std::size_t all) {
  const Spec& spec = tensors[0].compressor->spec();
  const std::uint64_t step = tensors[0].compressor->step;
  if (!is_measured(spec)) return is_dense(call.context(), spec, all, step);
  BypassControl& control = tensors[0].compressor->bypass_control;
  // In a group another vector may have stood for this one in the step of its next agreement.
  const bool has_passed = control.next < step;
  if (control.next == 0 || has_passed || control.count != all) {
    control = call.chooser().start_bypass(spec, all, step);
    if (check_lists(tensors)) control.next = BypassControl::never;
  }
  return control.dense;
}

// With bypass=auto and a fixed density: now and then ranks agree first on whether the call is
// dense. They go on at the same time, so the time from then on is that of the call alone.
Task<Error> run_measured(Call& call, SparseCall args, CallTimes& times) {
  Error error = co_await agree_on_bypass(call, args, times.before().timed);
  if (error) co_return error;
  times.agreed(monotonic_ns());
  const bool dense = args.tensors[0].compressor->bypass_control.dense;
  co_return co_await run_scheme(call, args, dense);
}

// How a call is run.
Task<Error> run_chosen(Call& call, const SparseCall& args, bool dense, CallTimes& times) {
  const Compressor& first = *args.tensors[0].compressor;
  if (args.spec().adapts()) return run_adapting(call, args, times);
  const bool agrees = is_measured(args.spec()) && first.step == first.bypass_control.next;
  if (agrees) return run_measured(call, args, times);
  return run_scheme(call, args, dense);
}

// Around it momentum is corrected and residuals are filtered, whichever exchange runs.
Task<Error> run_corrected(Call& call, SparseCall args, bool dense, CallTimes& times) {
  const bool corrects = corrects_momentum(args.spec());
  Task<Error> before = corrects ? correct_momentum(call, args) : hold_residuals_back(call, args);
  Error error = co_await std::move(before);
  if (error) co_return error;
  Task<Error> running = run_chosen(call, args, dense, times);
  error = co_await std::move(running);
  if (error) co_return error;
  Task<Error> after = corrects ? leave_velocities(call, args) : release_residuals(call, args);
  co_return co_await std::move(after);
}

Task<Error> run_compressed(Call& call, std::span<CompressedTensor> tensors, Tuning tuning,
                           CompressedCalls& calls, Call* device) {
  const std::uint64_t begun_ns = monotonic_ns();
  const std::size_t all = elements_of(tensors);
  const bool dense = begin_choice(call, tensors, all);
  Error error;
  if (!dense || tensors[0].compressor->spec().adapts()) error = check_lists(tensors);
  if (error) co_return error;
  CallTimes times(calls, tensors, all, begun_ns);
  error = begin_all(tensors, call.number(), call.size());
  Traffic traffic;
  Error refused;
  SparseCall args{tensors, &tuning, tuning.chunk_bytes, 0, &traffic, &refused, nullptr, device};
  args.parcel = parcel_of(args);
  if (!error) error = call.comm().revoked;
  Task<Error> running;
  try {
    if (args.spec().by_host) settle_slices(call, tensors, dense);
    if (!error) {
      const bool plain = !corrects_momentum(args.spec()) && !filters_residual(args.spec());
      running =
          plain ? run_chosen(call, args, dense, times) : run_corrected(call, args, dense, times);
    }
  } catch (const std::bad_alloc&) {
    error = out_of_memory();
  }
  if (!error) error = co_await std::move(running);
  // A device that has failed has revoked the communicator, and its results are missing.
  if (!error && device) error = call.comm().revoked;
  if (error) error = fail_here(call, error);
  for (const CompressedTensor& tensor : tensors) {
    if (error) {
      tensor.compressor->fail(call.host_compute());
    } else {
      tensor.compressor->end(call.host_compute());
    }
  }
  share_traffic(traffic, tensors, all);
  times.end(tensors, bool(error), monotonic_ns());
  co_return error ? error : refused;
}

Task<Error> run_on_device(Call& call, std::span<CompressedTensor> tensors, Tuning tuning,
                          CompressedCalls& calls) {
  DeviceCall both(call);
  Error error = co_await run_compressed(*both.lists, tensors, tuning, calls, &both.whole);
  co_return error;
}

}  // namespace

Task<Error> allreduce_compressed(Call& call, std::span<CompressedTensor> tensors, Tuning tuning,
                                 CompressedCalls& calls) {
  if (tensors[0].device) return run_on_device(call, tensors, tuning, calls);
  return run_compressed(call, tensors, tuning, calls, nullptr);
}

void absorb_gradients(Compute& host, std::uint32_t number, std::span<CompressedTensor> tensors) {
  static_cast<void>(begin_all(tensors, number, 1));
  for (const CompressedTensor& tensor : tensors) tensor.compressor->fail(host);
}

void take_back(Compute& host, std::uint32_t number, std::span<CompressedTensor> tensors) {
  for (const CompressedTensor& tensor : tensors) {
    tensor.compressor->return_after(host, number - 1);
  }
}

std::uint64_t digest_of_tensors(std::span<const CompressedTensor> tensors) {
  std::uint64_t hash = 0;
  for (const CompressedTensor& tensor : tensors) {
    hash = mix(mix(hash, tensor.count), tensor.compressor->digest());
    hash = mix(hash, static_cast<std::uint64_t>(tensor.type) << 1 | (tensor.average ? 1u : 0u));
  }
  return hash;
}

}  // namespace pith
