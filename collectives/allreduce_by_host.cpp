// hierarchy=host: ranks of a host are one to the compressed scheme.
//
//   every rank  add the gradient
//   owner i     sum slice i of the host's ranks       over views, or messages where memory is
//   private
//               the spec's scheme with the other hosts' owners of slice i
//   every rank  gather the owners' pairs, write
//
// A slice is a part of every tensor, see hosts.hpp; the scheme knows nothing of hosts, and elects
// its k from each slice. So an election is a host's, leaders are hosts, and gradients of a host
// meet exactly; score=raw measures what the host has, the residual included. The residual of a host
// is its owners', each of a slice (compress/host_slice.hpp). What a rank gives is kept until the
// next call has ended well, as by a dense call.
//
// Where each host has one rank the scheme runs as it is; on a single host calls are dense. Cost:
// by_host_cost.hpp. The idea, of AR-Topk, is in the outlook of [Tyagi, Swany 2023].
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "collectives/ar_topk_cost.hpp"
#include "collectives/by_host_cost.hpp"
#include "collectives/dense_result.hpp"
#include "collectives/exdyna_cost.hpp"
#include "collectives/host_sum.hpp"
#include "collectives/hosts.hpp"
#include "collectives/parcels.hpp"
#include "collectives/result_writer.hpp"
#include "collectives/sub_call.hpp"
#include "compress/host_slice.hpp"

namespace pith {

namespace {

// Inside hosts, where host_sum.cpp has the first lanes.
constexpr std::uint16_t head_lane = 8;
constexpr std::uint16_t pairs_lane = 9;
constexpr std::size_t message_bytes = std::size_t{16} << 20;

Range slice_of(std::size_t count, const Hosts& hosts, int slice) {
  return block(count, hosts.slices(), slice);
}

// Whether the rank owns a slice at all, and which part of a tensor that is.
std::optional<int> own_slice(const Call& call, const Hosts& hosts) {
  const int index = hosts.index_of(call.rank());
  return index < hosts.slices() ? std::optional<int>(index) : std::nullopt;
}

// What one call keeps, on each rank.
struct ByHost {
  ByHost(Call& whole, const SparseCall& sparse)
      : call(whole),
        args(sparse),
        hosts(*whole.context().hosts),
        own(own_slice(whole, hosts)),
        inside(whole, static_cast<int>(neighbours().size()), whole.views(),
               [this](int i) { return neighbours()[static_cast<std::size_t>(i)]; }) {
    ranges_ = Scratch(whole.host_compute(), slices() * sizeof(Range));
    std::size_t begin = 0;
    for (std::size_t s = 0; s < slices(); ++s) {
      std::size_t size = 0;
      for (const CompressedTensor& tensor : args.tensors) {
        size += slice_of(tensor.count, hosts, static_cast<int>(s)).size;
      }
      ranges()[s] = {begin, size};
      begin += size;
    }
    elements = begin;
  }

  std::span<const int> neighbours() const { return hosts.ranks_of(hosts.host_of(call.rank())); }
  std::size_t slices() const { return static_cast<std::size_t>(hosts.slices()); }
  // Of the slices, each of all tensors, one behind the other.
  std::span<Range> ranges() const {
    return {reinterpret_cast<Range*>(ranges_.bytes().data), slices()};
  }
  Range part(const CompressedTensor& tensor, std::size_t slice) const {
    return slice_of(tensor.count, hosts, static_cast<int>(slice));
  }
  PairList& pairs(const CompressedTensor& tensor, std::size_t slice) const {
    return tensor.compressor->received(slices())[slice];
  }
  Compute& host() const { return call.host_compute(); }
  FrameArena& frame_arena() const { return call.frame_arena(); }

  Call& call;
  const SparseCall& args;
  const Hosts& hosts;
  const std::optional<int> own;
  SubCall inside;
  std::size_t elements = 0;
  bool nan = false;  // somebody's gradient was not finite, and nothing is delivered
  Scratch joined;    // of several tensors: what this rank gives
  Scratch sum;       // an owner's: of its slice

 private:
  Scratch ranges_;
};

// --- what is given ---

std::byte* bytes_of(float* floats) { return reinterpret_cast<std::byte*>(floats); }

// This rank's accumulators, slice by slice.
std::byte* join(ByHost& by) {
  const auto tensors = by.args.tensors;
  if (tensors.size() == 1) return bytes_of(tensors[0].compressor->accumulator());
  by.joined = Scratch(by.host(), std::max<std::size_t>(by.elements, 1) * sizeof(float));
  std::byte* at = by.joined.bytes().data;
  for (std::size_t s = 0; s < by.slices(); ++s) {
    for (const CompressedTensor& tensor : tensors) {
      const Range range = by.part(tensor, s);
      if (range.size == 0) continue;
      by.call.run<CopyKernel>({at, bytes_of(tensor.compressor->accumulator() + range.begin),
                               range.size * sizeof(float)});
      at += range.size * sizeof(float);
    }
  }
  return by.joined.bytes().data;
}

// What the owner adds itself: of its slice, the residual too.
void begin_sum(ByHost& by) {
  const auto own = static_cast<std::size_t>(*by.own);
  by.sum = Scratch(by.host(), std::max<std::size_t>(by.ranges()[own].size, 1) * sizeof(float));
  std::byte* at = by.sum.bytes().data;
  for (const CompressedTensor& tensor : by.args.tensors) {
    const Range range = by.part(tensor, own);
    if (range.size == 0) continue;
    const std::byte* given = bytes_of(tensor.compressor->accumulator() + range.begin);
    if (const float* kept = tensor.compressor->slice()->before()) {
      by.call.run<ReduceKernel>({at, given, reinterpret_cast<const std::byte*>(kept), range.size,
                                 DType::f32, Op::sum, false});
    } else {
      by.call.run<CopyKernel>({at, given, range.size * sizeof(float)});
    }
    at += range.size * sizeof(float);
  }
}

Task<Error> sum_slices(ByHost& by) {
  if (by.own) begin_sum(by);
  HostSum sum{join(by), by.ranges(), by.sum.bytes().data, by.nan,
              std::max<std::size_t>(by.args.chunk_bytes / sizeof(float), 1)};
  Task<Error> summing = sum_in_host(by.inside.call(), sum, *by.args.traffic);
  Error error = co_await std::move(summing);
  by.nan = sum.flag;
  co_return error;
}

// --- between hosts ---

// The tensors of this rank's slice, in scratch memory.
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

// An element whose sum over the host is not finite leaves the residual as it was.
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
    // To a scheme, a rank of this host is the host.
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
  args.nan = &by.nan;
  args.parcel = parcel_elements(inner.elements(), args.spec().density, args.chunk_bytes);
  by.nan = false;
  Task<Error> running = run_flat_scheme(between.call(), args);
  Error error = co_await std::move(running);
  if (!error) end_inner(by, inner);
  co_return error;
}

// --- the result ---

// How many pairs an owner has of each tensor, and whether there is nothing to deliver.
class Head {
 public:
  Head(Compute& host, std::size_t tensors)
      : memory_(host, (1 + tensors) * sizeof(std::uint32_t)), tensors_(tensors) {}
  std::uint32_t& nan() const { return words()[0]; }
  std::uint32_t& count(std::size_t t) const { return words()[1 + t]; }
  Bytes bytes() const { return memory_.bytes().part(0, (1 + tensors_) * sizeof(std::uint32_t)); }
  std::size_t pairs() const {
    std::size_t all = 0;
    for (std::size_t t = 0; t < tensors_; ++t) all += count(t);
    return all;
  }

 private:
  std::uint32_t* words() const { return reinterpret_cast<std::uint32_t*>(memory_.bytes().data); }
  Scratch memory_;
  std::size_t tensors_;
};

constexpr std::size_t pair_bytes = sizeof(std::uint32_t) + sizeof(float);

// The own slice's pairs, by index of the whole vector, for writing.
void collect_own(ByHost& by) {
  const auto own = static_cast<std::size_t>(*by.own);
  for (const CompressedTensor& tensor : by.args.tensors) {
    PairList& into = by.pairs(tensor, own);
    const Range range = by.part(tensor, own);
    if (range.size == 0 || by.nan) continue;
    PairList& sums = tensor.compressor->slice()->sums();
    into.reserve(sums.count());
    for (std::size_t i = 0; i < sums.count(); ++i) {
      into.indices()[i] = *sums.indices(i) + static_cast<std::uint32_t>(range.begin);
    }
    if (sums.count() > 0) {
      std::memcpy(into.values(), sums.values(), sums.count() * sizeof(float));
    }
    into.end_run(sums.count());
  }
}

struct Told {
  Head head;
  Scratch pairs;  // indices and values of one tensor after the other
};

Told write_told(ByHost& by) {
  const auto own = static_cast<std::size_t>(*by.own);
  const auto tensors = by.args.tensors;
  Told told{Head(by.host(), tensors.size()), Scratch()};
  told.head.nan() = by.nan;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    told.head.count(t) = static_cast<std::uint32_t>(by.pairs(tensors[t], own).count());
  }
  told.pairs = Scratch(by.host(), std::max<std::size_t>(told.head.pairs(), 1) * pair_bytes);
  std::byte* at = told.pairs.bytes().data;
  for (const CompressedTensor& tensor : tensors) {
    PairList& list = by.pairs(tensor, own);
    const std::size_t bytes = list.count() * sizeof(float);
    if (bytes == 0) continue;
    std::memcpy(at, list.indices(), bytes);
    std::memcpy(at + bytes, list.values(), bytes);
    at += 2 * bytes;
  }
  return told;
}

Task<Error> tell_host(ByHost& by) {
  if (!by.own) co_return Error();
  const Told told = write_told(by);
  Call& host = by.inside.call();
  const Bytes pairs = told.pairs.bytes().part(0, told.head.pairs() * pair_bytes);
  for (int d = 1; d < host.size(); ++d) {
    const int to = wrap(host.rank() + d, host.size());
    Error error = co_await host.send(to, head_lane, 0, told.head.bytes());
    if (error) co_return error;
    for (std::size_t k = 0; k < chunks_in(pairs.size, message_bytes); ++k) {
      const Range range = chunk_of({0, pairs.size}, message_bytes, k);
      error = co_await host.send(to, pairs_lane, static_cast<std::uint32_t>(k),
                                 pairs.part(range.begin, range.size));
      if (error) co_return error;
    }
    by.args.traffic->sent += told.head.bytes().size + pairs.size;
  }
  co_return Error();
}

// False: no such lists.
bool read_told(ByHost& by, std::size_t owner, const Head& head, const std::byte* at) {
  for (std::size_t t = 0; t < by.args.tensors.size(); ++t) {
    const CompressedTensor& tensor = by.args.tensors[t];
    const Range range = by.part(tensor, owner);
    const std::size_t count = head.count(t);
    PairList& into = by.pairs(tensor, owner);
    into.reserve(count);
    const std::size_t bytes = count * sizeof(float);
    if (bytes > 0) {
      std::memcpy(into.indices(), at, bytes);
      std::memcpy(into.values(), at + bytes, bytes);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t index = *into.indices(i);
      const bool rises = i == 0 || *into.indices(i - 1) < index;
      if (!rises || index < range.begin || index >= range.begin + range.size) return false;
    }
    into.end_run(count);
    at += 2 * bytes;
  }
  return true;
}

Error malformed(Call& call, int from) {
  return call.fail(
      Error(Code::internal, fmt::format("rank {} sent sums that cannot be read", from), from));
}

Task<Error> hear_owner(ByHost& by, int owner) {
  Call& host = by.inside.call();
  const Head head(by.host(), by.args.tensors.size());
  Error error = co_await host.recv(owner, head_lane, 0, head.bytes());
  if (error) co_return error;
  const std::size_t bytes = head.pairs() * pair_bytes;
  if (head.pairs() > by.ranges()[static_cast<std::size_t>(owner)].size) {
    co_return malformed(by.call, owner);
  }
  by.nan |= head.nan() != 0;
  const Scratch pairs(by.host(), std::max<std::size_t>(bytes, 1));
  for (std::size_t k = 0; k < chunks_in(bytes, message_bytes); ++k) {
    const Range range = chunk_of({0, bytes}, message_bytes, k);
    error = co_await host.recv(owner, pairs_lane, static_cast<std::uint32_t>(k),
                               pairs.bytes().part(range.begin, range.size));
    if (error) co_return error;
  }
  by.args.traffic->received += head.bytes().size + bytes;
  if (!read_told(by, static_cast<std::size_t>(owner), head, pairs.bytes().data)) {
    co_return malformed(by.call, owner);
  }
  co_return error;
}

Task<Error> hear_host(ByHost& by) {
  for (int owner = 0; owner < by.hosts.slices(); ++owner) {
    if (owner == by.inside.call().rank()) continue;
    Task<Error> hearing = hear_owner(by, owner);
    Error error = co_await std::move(hearing);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> share_result(ByHost& by) {
  for (const CompressedTensor& tensor : by.args.tensors) {
    for (PairList& list : tensor.compressor->received(by.slices())) list.begin(DType::f32);
  }
  if (by.own) collect_own(by);
  std::array<Task<Error>, 2> strands{tell_host(by), hear_host(by)};
  co_return co_await when_all(strands);
}

void deliver(ByHost& by) {
  if (by.nan) return deliver_nan(by.call, by.args);
  for (const CompressedTensor& tensor : by.args.tensors) {
    ResultWriter writer(by.call, tensor);
    for (std::size_t s = 0; s < by.slices() && tensor.count > 0; ++s) {
      PairList& list = by.pairs(tensor, s);
      writer.put(by.part(tensor, s), {list.indices(), list.values(), list.count()}, DType::f32);
    }
    by.args.conclude(tensor, writer);
    tensor.compressor->take_all();
    if (!by.own) tensor.compressor->elected = 0;
  }
}

}  // namespace

// A scheme's state is of one slice, and the same on all its owners: that of other ranks or another
// slice must not be used by some of them.
void settle_slices(Call& call, std::span<CompressedTensor> tensors, bool dense) {
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
    compressor.layout.count = range.size;
    if (!dense && range.size > 0) compressor.make_slice(range.begin, range.size);
    if (compressor.slice()) compressor.slice()->open(call.number());
  }
}

Task<Error> allreduce_by_host(Call& call, SparseCall args) {
  ByHost by(call, args);
  by.nan = add_all(call, args);
  Task<Error> summing = sum_slices(by);
  Error error = co_await std::move(summing);
  if (error) co_return error;
  if (by.own) {
    Task<Error> running = run_between_hosts(by);
    error = co_await std::move(running);
    if (error) co_return error;
  }
  Task<Error> sharing = share_result(by);
  error = co_await std::move(sharing);
  if (error) co_return error;
  deliver(by);
  co_return error;
}

bool is_faster_dense_by_host(const Spec& spec, std::size_t count, const Hosts& hosts) {
  constexpr LinkCost inside{1e-6, 0.2e-9, 0.2e-9};
  constexpr LinkCost wire{20e-6, 0.8e-9, 0.2e-9};
  constexpr double bits = 48;  // of a pair, with what it costs to add it up
  if (count == 0) return false;
  int most = 0;
  for (int h = 0; h < hosts.count(); ++h) {
    most = std::max(most, static_cast<int>(hosts.ranks_of(h).size()));
  }
  const auto slices = static_cast<std::size_t>(hosts.slices());
  const std::size_t slice = chunks_in(count, slices);
  const double k = static_cast<double>(elected_of(spec.density, slice));
  const bool all_lists = spec.scheme == Scheme::topk;
  const SparseShape pairs{hosts.count(), k, bits / 2, bits / 2, 1};
  const double exchange = all_lists ? topk_allgather_cost(pairs, wire.alpha, wire.beta)
                                    : exdyna_cost({hosts.count(), slice, spec.density, 1, 4}, wire);
  const double found = k * (all_lists ? hosts.count() : 1) * static_cast<double>(slices);
  // The wires of a host carry all its slices.
  const ByHostShape shape{most, hosts.slices(), count, found,
                          exchange * static_cast<double>(slices)};
  const double others = 1 - 1 / static_cast<double>(hosts.count());
  const double dense = 2 * wire.alpha + 2 * others * 4 * static_cast<double>(count) * wire.beta +
                       2 * 4 * static_cast<double>(count) * inside.beta;
  return dense < by_host_cost(shape, inside, true);
}

}  // namespace pith
