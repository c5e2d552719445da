// Hierarchical allreduce: the network carries each host's sum, not each rank's vector.
//
//   inside a host    rank i gets the sum of slice i over the ranks of its host
//   between hosts    the ranks with the same slice sum it: by recursive doubling while a message
//                    costs as much as the slice, else by a ring
//   inside a host    every rank gets the slices of the others
//
// The elements that a whole number of slices leaves over, all of them where slices would be short,
// are summed inside the host by all its ranks, and go between hosts with the last rank's slice.
// Cost with H hosts of R ranks: that of the sum of n/R bytes among H ranks, and what passes inside
// the hosts. Wins where hosts with several ranks meet over a network: they share its ports. Where
// hosts do not all have as many ranks a ring does everything; where each has one rank, or all
// are on one, it is a flat sum alone.
#include "collectives/dense/handle_exchange.hpp"
#include "collectives/hosts.hpp"
#include "collectives/sub_call.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

// Shorter slices do not pay for the messages inside the host.
constexpr std::size_t least_slice_bytes = 4096;

// Parts of the call inside a host, which have lanes of their own.
enum Part : std::uint16_t {
  sum_rest = 0,
  sum_slices = 200,
  spread_slices = 400,
  spread_rest = 600
};

// Between hosts.
const Algorithm& flat_algorithm(std::size_t bytes, const Tuning& tuning) {
  const bool is_short = static_cast<double>(bytes) <= tuning.start_bytes;
  return *find_algorithm(Collective::allreduce, is_short ? "recursive_doubling" : "ring");
}

// Inside hosts.
const Algorithm& inner_algorithm(Collective collective, int ranks) {
  if (collective == Collective::allreduce) return *find_algorithm(collective, "recursive_doubling");
  if (collective == Collective::broadcast) return *find_algorithm(collective, "binomial");
  return *find_algorithm(collective, ranks <= most_view_ranks ? "views" : "ring");
}

std::size_t slice_elements(std::size_t count, std::size_t element_bytes, std::size_t ranks) {
  const std::size_t slice = count / ranks;
  return slice * element_bytes >= least_slice_bytes ? slice : 0;
}

Task<Error> sum_flat(Call& call, CollectiveArgs args) {
  return flat_algorithm(args.count * size_of(args.type), args.tuning).run(call, args);
}

// The vector, and this rank's host.
struct Hierarchy {
  Hierarchy(Call& whole, const CollectiveArgs& arguments, const Hosts& all)
      : call(whole),
        args(arguments),
        hosts(all),
        ranks(hosts.most_ranks()),
        index(hosts.index_of(whole.rank())),
        slice(slice_elements(args.count, size_of(args.type), static_cast<std::size_t>(ranks))),
        inside(whole, ranks, whole.views(), [this](int i) { return member(hosts_own(), i); }),
        between(whole, hosts.count(), false, [this](int h) { return member(h, index); }) {}

  int hosts_own() const { return hosts.host_of(call.rank()); }
  int member(int host, int i) const { return hosts.ranks_of(host)[static_cast<std::size_t>(i)]; }
  Range slices() const { return {0, slice * static_cast<std::size_t>(ranks)}; }
  Range rest() const { return {slices().size, args.count - slices().size}; }
  Range own_slice() const { return {slice * static_cast<std::size_t>(index), slice}; }
  // What this rank sums between hosts.
  Range own() const {
    const Range own = own_slice();
    return {own.begin, index == ranks - 1 ? args.count - own.begin : own.size};
  }
  Bytes in(Range range) const { return part(args.send, args.type, range); }
  Bytes out(Range range) const { return part(args.recv, args.type, range); }
  FrameArena& frame_arena() const { return call.frame_arena(); }

  // `count`: as the collective has it. Sums are finished between hosts.
  CollectiveArgs step(Collective collective, Bytes from, Bytes to, std::size_t count) const {
    CollectiveArgs one = args;
    one.collective = collective;
    one.send = from;
    one.recv = to;
    one.count = count;
    one.op = args.op == Op::avg ? Op::sum : args.op;
    return one;
  }

  Call& call;
  const CollectiveArgs args;
  const Hosts& hosts;
  const int ranks;  // of a host
  const int index;
  const std::size_t slice;
  SubCall inside;
  SubCall between;
};

Task<Error> run_inside(Hierarchy& of, Part part, CollectiveArgs args) {
  Call call(of.inside.call(), part);
  co_return co_await inner_algorithm(args.collective, of.ranks).run(call, args);
}

Task<Error> sum_inside(Hierarchy& of) {
  const Range rest = of.rest();
  if (rest.size > 0) {
    Error error = co_await run_inside(
        of, sum_rest, of.step(Collective::allreduce, of.in(rest), of.out(rest), rest.size));
    if (error) co_return error;
  }
  if (of.slice == 0) co_return Error();
  const Bytes own = of.out(of.own_slice());
  co_return co_await run_inside(
      of, sum_slices, of.step(Collective::reduce_scatter, of.in(of.slices()), own, of.slice));
}

Task<Error> sum_between(Hierarchy& of) {
  const Range own = of.own();
  if (own.size == 0) co_return Error();
  CollectiveArgs args = of.step(Collective::allreduce, of.out(own), of.out(own), own.size);
  args.op = of.args.op;
  if (args.divisor == 0) args.divisor = static_cast<float>(of.call.size());
  co_return co_await sum_flat(of.between.call(), args);
}

Task<Error> spread_inside(Hierarchy& of) {
  if (of.slice > 0) {
    const Bytes own = of.out(of.own_slice());
    Error error = co_await run_inside(
        of, spread_slices, of.step(Collective::allgather, own, of.out(of.slices()), of.slice));
    if (error) co_return error;
  }
  const Range rest = of.rest();
  if (rest.size == 0) co_return Error();
  CollectiveArgs args = of.step(Collective::broadcast, of.out(rest), of.out(rest), rest.size);
  args.root = of.ranks - 1;
  co_return co_await run_inside(of, spread_rest, args);
}

}  // namespace

Task<Error> allreduce_hierarchical(Call& call, CollectiveArgs args) {
  const Hosts* const hosts = call.context().hosts;
  if (!hosts || !hosts->share_ranks()) {
    co_return co_await sum_flat(call, args);
  }
  if (hosts->slices() != hosts->most_ranks()) {
    co_return co_await find_algorithm(Collective::allreduce, "ring")->run(call, args);
  }
  Hierarchy of(call, args, *hosts);
  Error error = co_await sum_inside(of);
  if (error) co_return error;
  error = co_await sum_between(of);
  if (error) co_return error;
  co_return co_await spread_inside(of);
}

// What passes inside hosts is counted as reading it: the link given is that between hosts.
double allreduce_hierarchical_cost(const Shape& shape, const LinkCost& link) {
  const int ranks = std::max(1, shape.ranks_a_host);
  Shape between = shape;
  between.ranks = ranks > 1 ? shape.hosts : shape.ranks;
  const std::size_t slice = slice_elements(shape.bytes, 1, static_cast<std::size_t>(ranks));
  if (slice > 0) between.bytes = slice;
  const double flat = flat_algorithm(between.bytes, shape.tuning).cost(between, link);
  if (ranks == 1) return flat;
  const double read = 2 * static_cast<double>(slice > 0 ? slice : shape.bytes) * (ranks - 1);
  return flat + 2 * link.message + link.gamma * read;
}

}  // namespace pith
