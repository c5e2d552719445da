// hierarchy=host: to the compressed scheme, the ranks of a host are one rank.
//
//   every rank  adds its gradient
//   owner i     sums slice i of its host's ranks: over views, or by messages if memory is private
//   owner i     runs the spec's scheme with the other hosts' owners of slice i
//   every rank  receives the pairs of the host's owners, writes the result
//
// A slice is a part of every tensor (hosts.hpp). The scheme knows nothing of hosts and elects its k
// in each slice, so elections are by host, leaders are hosts, and gradients inside a host are
// summed exactly. score=raw measures what the host contributes, residual included. A host's
// residual lies with its owners, a slice each (compress/host_slice.hpp). What a rank gives to
// owners is kept until the next call has succeeded, as in a dense call. Gradients on a device are
// copied to the host whole: sums, scheme and residual are on the host then, too, and the device
// gets the result.
//
// If each host has one rank the scheme runs as it is; on a single host calls are dense.
// Cost: by_host_cost.hpp.
#include "collectives/lists/parcels.hpp"
#include "collectives/sparse/by_host.hpp"
#include "collectives/sparse/dense_result.hpp"
#include "collectives/sparse/host_sum.hpp"
#include "collectives/sparse/take_values.hpp"
#include "compress/host_slice.hpp"

namespace pith {

namespace by_host {
namespace {

// --- inside a host ---

std::byte* bytes_of(float* floats) { return reinterpret_cast<std::byte*>(floats); }

// Adds the gradients to this rank's accumulators.
Task<Error> add_gradients(ByHost& by) {
  const VectorQueue queue = by.args.queue(by.call);
  if (queue.on_device()) {
    co_await queue.until(start_adding(by.call, by.args));
  } else {
    for (const CompressedTensor& tensor : by.args.tensors) {
      Error error = co_await add_in_turns(by.call, by.args, *tensor.compressor, {0, tensor.count});
      if (error) co_return error;
    }
  }
  by.nan = finish_adding(by.args);
  co_return Error();
}

// Provides this rank's accumulators as one vector in host memory, slice by slice.
Task<Error> join(ByHost& by) {
  const auto tensors = by.args.tensors;
  const VectorQueue queue = by.args.queue(by.call);
  if (tensors.size() == 1 && !queue.on_device()) {
    by.given = bytes_of(tensors[0].compressor->accumulator());
    co_return Error();
  }
  by.joined = Scratch(by.host(), std::max<std::size_t>(by.elements, 1) * sizeof(float));
  by.given = by.joined.bytes().data;
  std::byte* at = by.given;
  Fence last;
  for (std::size_t s = 0; s < by.slices(); ++s) {
    for (const CompressedTensor& tensor : tensors) {
      for (Range left = by.part(tensor, s); left.size > 0;) {
        const Range part = take_front(left, elements_at_once(by.args));
        const std::size_t bytes = part.size * sizeof(float);
        last = queue.run<CopyKernel>(
            {at, bytes_of(tensor.compressor->accumulator() + part.begin), bytes});
        at += bytes;
        if (!queue.on_device()) co_await by.call.turn();
      }
    }
  }
  co_await queue.until(last);
  co_return Error();
}

// Starts an owner's sum with its own contribution: its slice of the accumulators, plus the residual
// of the slice.
Task<Error> begin_sum(ByHost& by) {
  const auto own = static_cast<std::size_t>(*by.own);
  by.sum = Scratch(by.host(), std::max<std::size_t>(by.ranges()[own].size, 1) * sizeof(float));
  std::byte* at = by.sum.bytes().data;
  const std::byte* given = by.given + by.ranges()[own].begin * sizeof(float);
  for (const CompressedTensor& tensor : by.args.tensors) {
    const std::size_t size = by.part(tensor, own).size;
    const float* const kept = size > 0 ? tensor.compressor->slice()->before() : nullptr;
    for (std::size_t done = 0; done < size;) {
      const std::size_t count = std::min(size - done, host_elements_at_once);
      if (kept) {
        const auto* more = reinterpret_cast<const std::byte*>(kept + done);
        by.call.run<ReduceKernel>({at, given, more, count, DType::f32, Op::sum, false});
      } else {
        by.call.run<CopyKernel>({at, given, count * sizeof(float)});
      }
      given += count * sizeof(float);
      at += count * sizeof(float);
      done += count;
      co_await by.call.turn();
    }
  }
  co_return Error();
}

Task<Error> sum_slices(ByHost& by) {
  Error joined = co_await join(by);
  if (joined) co_return joined;
  if (by.own) {
    Error begun = co_await begin_sum(by);
    if (begun) co_return begun;
  }
  HostSum sum{.vector = by.given,
              .slices = by.ranges(),
              .sum = by.sum.bytes().data,
              .hidden = by.args.device != nullptr,
              .flag = by.nan,
              .chunk_elements = std::max<std::size_t>(by.args.chunk_bytes / sizeof(float), 1)};
  Error error = co_await sum_in_host(by.inside.call(), sum, *by.args.traffic);
  by.nan = sum.flag;
  co_return error;
}

// --- between hosts ---

// The tensors of the call between hosts: this rank's slice of each tensor. In scratch memory.
class Inner {
 public:
  explicit Inner(ByHost& by)
      : memory_(by.host(), by.args.tensors.size() * (sizeof(CompressedTensor) + sizeof(Found))) {
    const auto own = static_cast<std::size_t>(*by.own);
    auto* found = reinterpret_cast<Found*>(memory_.bytes().data +
                                           by.args.tensors.size() * sizeof(CompressedTensor));
    std::byte* at = by.sum.bytes().data;
    for (const CompressedTensor& outer : by.args.tensors) {
      const std::size_t count = by.part(outer, own).size;
      if (count == 0) continue;
      HostSlice& slice = *outer.compressor->slice();
      slice.sums().begin(DType::f32);
      found[size_] = {&outer, 0};
      tensors()[size_] = {.compressor = &slice.inner(),
                          .send = at,
                          .recv = nullptr,
                          .sparse = {nullptr, nullptr, 0, &found[size_].count, &slice.sums()},
                          .count = count,
                          .type = DType::f32,
                          .average = false};
      at += count * sizeof(float);
      elements_ += count;
      ++size_;
    }
    found_ = found;
  }

  std::size_t elements() const { return elements_; }
  std::span<CompressedTensor> all() const { return {tensors(), size_}; }
  const CompressedTensor& outer(std::size_t i) const { return *found_[i].outer; }

 private:
  struct Found {
    const CompressedTensor* outer;
    std::size_t count;
  };
  CompressedTensor* tensors() const {
    return reinterpret_cast<CompressedTensor*>(memory_.bytes().data);
  }

  Scratch memory_;
  Found* found_ = nullptr;
  std::size_t size_ = 0;
  std::size_t elements_ = 0;
};

// Where the sum over the host is not finite, restores the residual from before the call.
void keep_overflown(Compressor& outer, const float* sums) {
  HostSlice& slice = *outer.slice();
  if (slice.inner().stats.nonfinite == 0) return;
  const float* before = slice.before();
  for (std::size_t i = 0; before && i < slice.count(); ++i) {
    if (!std::isfinite(sums[i])) slice.inner().accumulator()[i] = before[i];
  }
}

void tell(const ByHost& by, const CompressedTensor& tensor) {
  Compressor& outer = *tensor.compressor;
  const CompressorStats& inner = outer.slice()->inner().stats;
  outer.slice()->tell();
  outer.stats.threshold = inner.threshold;
  outer.stats.imbalance = inner.imbalance;
  outer.stats.algorithm = inner.algorithm;
  outer.stats.select_seconds += inner.select_seconds;
  outer.elected = inner.selected_local;
  if (inner.leader >= 0) {
    outer.stats.leader = by.call.rank_at(by.hosts.owner(inner.leader, *by.own));
  }
}

void begin_inner(ByHost& by, const Inner& inner) {
  for (std::size_t i = 0; i < inner.all().size(); ++i) {
    const CompressedTensor& tensor = inner.all()[i];
    tensor.compressor->adopt(*inner.outer(i).compressor, 1);
    begin_tensor(tensor, by.call.number(), by.hosts.count());
    // To the scheme this rank is its host: what is not finite on any of its ranks counts.
    if (by.nan && i == 0) tensor.compressor->stats.nonfinite = 1;
  }
}

void end_inner(ByHost& by, const Inner& inner) {
  const bool drops = by.args.spec().drops_nonfinite;
  for (std::size_t i = 0; i < inner.all().size(); ++i) {
    const CompressedTensor& tensor = inner.all()[i];
    Compressor& outer = *inner.outer(i).compressor;
    static_cast<SchemeState&>(outer) = *tensor.compressor;
    if (drops) keep_overflown(outer, reinterpret_cast<const float*>(tensor.send));
    tensor.compressor->end(by.host());
    tell(by, inner.outer(i));
  }
}

Task<Error> run_between_hosts(ByHost& by) {
  const Inner inner(by);
  if (inner.all().empty()) co_return Error();
  SubCall between(by.call, by.hosts.count(), false,
                  [&by](int host) { return by.hosts.owner(host, *by.own); });
  begin_inner(by, inner);
  SparseCall args = by.args;
  args.tensors = inner.all();
  args.device = nullptr;
  args.nan = &by.nan;
  args.parcel = parcel_elements(inner.elements(), args.spec().density, args.chunk_bytes);
  by.nan = false;
  Error error = co_await run_flat_scheme(between.call(), args);
  if (!error) end_inner(by, inner);
  co_return error;
}

}  // namespace
}  // namespace by_host

// A scheme's state belongs to one slice and must be equal on all owners of the slice. So every rank
// drops state that is from another layout of hosts or another slice.
void settle_slices(Call& call, std::span<CompressedTensor> tensors, bool dense) {
  using namespace by_host;
  if (!call.context().hosts) return;
  const Hosts& hosts = *call.context().hosts;
  const std::optional<int> own = own_slice(call, hosts);
  for (const CompressedTensor& tensor : tensors) {
    Compressor& compressor = *tensor.compressor;
    if (compressor.layout.hosts != hosts.key()) {
      const std::uint64_t step = compressor.step;
      compressor.drop_slice(call.host_compute());
      static_cast<SchemeState&>(compressor) = SchemeState();
      compressor.step = step;
      compressor.layout.hosts = hosts.key();
    }
    if (hosts.alone() || hosts.count() == 1) continue;
    const Range range = own ? slice_of(tensor.count, hosts, *own) : Range();
    const HostSlice* kept = compressor.slice();
    if (kept && (kept->begin() != range.begin || kept->count() != range.size)) {
      compressor.drop_slice(call.host_compute());
    }
    compressor.layout.count = range.size;
    if (!dense && range.size > 0) compressor.make_slice(range.begin, range.size);
    if (compressor.slice()) compressor.slice()->open(call.number());
  }
}

Task<Error> allreduce_by_host(Call& call, SparseCall args) {
  using namespace by_host;
  ByHost by(call, args);
  Error error = co_await add_gradients(by);
  if (error) co_return error;
  error = co_await sum_slices(by);
  if (error) co_return error;
  if (by.own) {
    error = co_await run_between_hosts(by);
    if (error) co_return error;
  }
  error = co_await share_result(by);
  if (error) co_return error;
  deliver(by);
  co_return error;
}

}  // namespace pith
