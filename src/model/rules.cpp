#include "model/rules.hpp"

#include "collectives/patterns.hpp"
#include "collectives/registry.hpp"

namespace pith {

namespace {

// Evaluated at compile time, because the choice is made in every call.
consteval const Algorithm& entry(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithm_table) {
    if (algorithm.collective == collective && algorithm.name == name) return algorithm;
  }
  throw "no such algorithm";
}

constexpr std::size_t kib = 1024;

// The size in bytes whose transfer costs as much as one message.
std::size_t short_bytes_of(bool views) { return views ? 2 * kib : 32 * kib; }

bool is_power_of_two(int ranks) { return floor_power_of_two(ranks) == ranks; }

// Ranks take turns on the cores, so rounds cost more than messages.
const Algorithm& oversubscribed_allreduce(const Shape& shape) {
  const std::size_t bytes_a_rank = shape.bytes / static_cast<std::size_t>(shape.ranks);
  if (shape.bytes <= 2 * kib && shape.ranks <= 8) return entry(Collective::allreduce, "direct");
  if (shape.bytes <= 32 * kib) return entry(Collective::allreduce, "recursive_doubling");
  if (shape.ranks <= 8) return entry(Collective::allreduce, "two_shot");
  if (bytes_a_rank >= 128 * kib) return entry(Collective::allreduce, "ring");
  return is_power_of_two(shape.ranks) ? entry(Collective::allreduce, "rabenseifner")
                                      : entry(Collective::allreduce, "double_tree");
}

// Kernels read peers' memory in place; messages would be staged in pinned memory.
const Algorithm& device_allreduce(const Shape& shape) {
  return shape.bytes <= 64 * kib ? entry(Collective::allreduce, "one_shot")
                                 : entry(Collective::allreduce, "two_shot");
}

const Algorithm& default_allreduce(const Shape& shape) {
  if (shape.devices && shape.views && shape.ranks <= 8) return device_allreduce(shape);
  if (shape.oversubscribed && shape.views) return oversubscribed_allreduce(shape);
  const std::size_t short_bytes = short_bytes_of(shape.views);
  const int few_ranks = shape.views ? 8 : 4;
  const std::size_t bytes_a_rank = shape.bytes / static_cast<std::size_t>(shape.ranks);
  const bool pair_over_views = shape.views && shape.ranks == 2;
  if (shape.bytes <= (pair_over_views ? 4 * kib : short_bytes)) {
    return entry(Collective::allreduce, "recursive_doubling");
  }
  if (pair_over_views && shape.bytes <= 32 * kib) return entry(Collective::allreduce, "one_shot");
  const bool takes_turns = shape.oversubscribed && !shape.views && !shape.multi_host();
  const bool has_partners = shape.ranks > 2 && is_power_of_two(shape.ranks);
  if (takes_turns && has_partners && bytes_a_rank >= 256 * kib) {
    return entry(Collective::allreduce, "rabenseifner");
  }
  const bool meets_at_ports = shape.multi_host() && shape.ranks > 2;
  const std::size_t long_bytes_a_rank = (meets_at_ports ? 64 : 8192) * kib;
  const bool pair_by_messages = !shape.views && shape.ranks == 2;
  const bool runs_long = pair_by_messages || (!shape.views && bytes_a_rank >= long_bytes_a_rank);
  if (shape.ranks <= few_ranks && !runs_long) return entry(Collective::allreduce, "two_shot");
  if (bytes_a_rank >= 16 * kib) return entry(Collective::allreduce, "ring");
  if (is_power_of_two(shape.ranks)) return entry(Collective::allreduce, "rabenseifner");
  return shape.bytes >= 4 * short_bytes ? entry(Collective::allreduce, "double_tree")
                                        : entry(Collective::allreduce, "recursive_doubling");
}

// Kernels read what their peers send, however short: messages would be staged in pinned memory.
bool read_by_kernels(const Shape& shape) {
  return shape.devices && shape.views && shape.ranks <= 8 && shape.bytes > 0;
}

// Whether to copy blocks out of the peers' memory: must be long enough to pay for the opening and
// closing messages.
bool pays_by_views(const Shape& shape) {
  const std::size_t all = shape.bytes * static_cast<std::size_t>(shape.ranks);
  return read_by_kernels(shape) || (shape.views && shape.ranks <= 8 && all > 32 * kib);
}

// Whether, else, blocks go straight from rank to rank. Two ranks' rings do the same.
bool pays_directly(const Shape& shape) {
  return shape.views && shape.ranks > 2 && shape.ranks <= 8;
}

const Algorithm& default_broadcast(const Shape& shape) {
  const bool reads = shape.views && shape.ranks <= 8 && shape.bytes > 16 * kib;
  if (read_by_kernels(shape) || reads) return entry(Collective::broadcast, "views");
  return shape.bytes <= shape.tuning.chunk_bytes ? entry(Collective::broadcast, "binomial")
                                                 : entry(Collective::broadcast, "chain");
}

const Algorithm& default_allgather(const Shape& shape) {
  if (pays_by_views(shape)) return entry(Collective::allgather, "views");
  if (pays_directly(shape)) return entry(Collective::allgather, "direct");
  const std::size_t all = shape.bytes * static_cast<std::size_t>(shape.ranks);
  const std::size_t short_bytes = short_bytes_of(shape.views && !shape.oversubscribed);
  return shape.ranks > 3 && all <= short_bytes ? entry(Collective::allgather, "bruck")
                                               : entry(Collective::allgather, "ring");
}

const Algorithm& default_reduce_scatter(const Shape& shape) {
  if (pays_by_views(shape)) return entry(Collective::reduce_scatter, "views");
  if (pays_directly(shape)) return entry(Collective::reduce_scatter, "direct");
  const std::size_t short_bytes = short_bytes_of(shape.views);
  return shape.bytes * static_cast<std::size_t>(shape.ranks) <= short_bytes
             ? entry(Collective::reduce_scatter, "recursive_halving")
             : entry(Collective::reduce_scatter, "ring");
}

// Of a scan or an exclusive one.
const Algorithm& default_scan(const Shape& shape, const Algorithm& doubling,
                              const Algorithm& chain) {
  return shape.ranks > 3 && shape.bytes <= short_bytes_of(shape.views) ? doubling : chain;
}

}  // namespace

// The rule, which costs overrule where no ranks share memory (cheapest.hpp); it sees only what
// all ranks agree on. The first case that fits decides.
//
// allreduce, all ranks use CUDA devices and share memory, up to 8 ranks:
//   one-shot   up to 64 KiB, then two-shot: messages would be copied to the host and back (8 bytes
//              of 2 ranks: 10 operations of the driver, in place 7; no GPU has measured)
// allreduce, more ranks than cores over shared memory, where rounds cost more than messages:
//   direct     up to 2 KiB and 8 ranks (one round: 1.0 to 1.9 times as fast as recursive doubling
//              with 3 to 6 ranks on two cores, as fast with 8)
//   recursive doubling  up to 32 KiB
//   two-shot   up to 8 ranks (two rounds; over views up to 2.7 times as fast as the ring, by
//              messages at worst 1.3 times as slow)
//   ring       from 128 KiB a rank on; below, Rabenseifner for P a power of two, else double tree
// allreduce, all ranks share memory:
//   recursive doubling  up to 2 KiB (fewest messages); 2 ranks up to 4 KiB (over views as fast as
//              one-shot, by messages 1.4 times)
//   one-shot   2 ranks up to 32 KiB (over views as fast as two-shot, by messages a fifth faster:
//              data cross once)
//   two-shot   up to 8 ranks (in place over views)
// allreduce, other links:
//   recursive doubling  up to 32 KiB (a message of a socket costs as much as 30 KiB on it)
//   Rabenseifner  more ranks than cores on one host, P > 2 a power of two, from 256 KiB a rank on:
//              with one partner at a time little is on the way at once, and stays in the caches
//              (loopback, two cores: 4 ranks, 4 and 16 MiB, 0.50 to 0.77 of the time of two-shot; 8
//              ranks, 0.74 to 1.08 of the ring's; below as fast as two-shot, or slower)
//   ring       2 ranks: the messages of two-shot, but as many on the way as there are lanes, no
//   more
//              and no fewer (64 KiB to 16 MiB, of two-shot's time: loopback 0.88 to 0.97; two hosts
//              over TCP, 1 and 10 Gbit/s or without a limit, 0.89 to 1.03; verbs over soft-RoCE 4
//              to 16 MiB 0.54 to 0.66, where a write ends in the call that posts it)
//   two-shot   up to 4 ranks, below 8 MiB a rank (above, its inputs run so far ahead of its results
//              that they leave the caches). With more than 2 ranks on several hosts only below 64
//              KiB a rank: its senders converge on every port, whose queue overflows (4 hosts, 1 to
//              16 MiB, links of 0.1 and 1 Gbit/s: 1.06 to 1.44 times the ring's time)
// allreduce, what remains of the last two:
//   ring       from 16 KiB a rank on; below, its 2(P-1) messages cost more than its bytes save
//   Rabenseifner  for P a power of two: 2 log P messages carry as few bytes
//   double tree   from four times the short size on, where its 2n bytes beat the log P vectors of
//              recursive doubling; below, recursive doubling
// broadcast, reduce-scatter, allgather, alltoall, all ranks use CUDA devices and share memory, up
// to 8 ranks:
//   views      for the reason above (no GPU has measured)
// broadcast, else:
//   views      up to 8 ranks that share memory, above 16 KiB (registered memory: 2 ranks 3 to 15
//              times as fast, 4 ranks 1.5 to 3 times; private: 0.5 to 1.2)
//   binomial up to one chunk; chain above, also between two ranks: a message must not outgrow what
//   a late receiver can park
// reduce-scatter, else:
//   views up to 8 ranks that share memory, above 32 KiB in all blocks together; direct below, from
//   three ranks on (4 ranks on two cores, 16 bytes to 32 KiB: 1.15 to 1.8 times as fast as what
//   was chosen); recursive halving while all blocks together are short as above; then ring
// allgather, else:
//   views and direct as for reduce-scatter (direct: 1.25 to 1.6 times as fast); Bruck's from four
//   ranks on while all blocks together are short as above, or up to 32 KiB where ranks share cores;
//   then ring
// alltoall, else: pairwise
// scan, exclusive scan: recursive doubling from four ranks on while the vector is short as above
// (two or three ranks need as many rounds either way); then chain
// reduce, gather, scatter, barrier: the one that does not go by hosts
const Algorithm& default_algorithm(const Shape& shape, Collective collective) {
  switch (collective) {
    case Collective::allreduce:
      return default_allreduce(shape);
    case Collective::broadcast:
      return default_broadcast(shape);
    case Collective::allgather:
      return default_allgather(shape);
    case Collective::barrier:
      return entry(Collective::barrier, "dissemination");
    case Collective::reduce:
      return entry(Collective::reduce, "tree");
    case Collective::reduce_scatter:
      return default_reduce_scatter(shape);
    case Collective::alltoall:
      return read_by_kernels(shape) ? entry(Collective::alltoall, "views")
                                    : entry(Collective::alltoall, "pairwise");
    case Collective::gather:
      return entry(Collective::gather, "binomial");
    case Collective::scatter:
      return entry(Collective::scatter, "binomial");
    case Collective::scan:
      return default_scan(shape, entry(Collective::scan, "recursive_doubling"),
                          entry(Collective::scan, "chain"));
    case Collective::exscan:
      return default_scan(shape, entry(Collective::exscan, "recursive_doubling"),
                          entry(Collective::exscan, "chain"));
    case Collective::split:
      break;
  }
  return algorithm_table.front();
}

}  // namespace pith
