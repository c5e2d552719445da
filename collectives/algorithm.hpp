// The table entry of an algorithm: its name, coroutine, cost and limit.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "collectives/call.hpp"
#include "collectives/coded/wire_coding.hpp"
#include "collectives/uneven_blocks.hpp"
#include "core/dtype.hpp"

namespace pith {

enum class Collective : std::uint8_t {
  allreduce,
  broadcast,
  allgather,
  barrier,
  reduce,
  reduce_scatter,
  alltoall,
  gather,
  scatter,
  scan,
  exscan,  // rank 0 has no result
  split,   // has no algorithm, but ranks compare it like the others
};
inline constexpr std::size_t collective_count = 12;
std::string_view name_of(Collective collective);
// Whether each rank's result is over the ranks up to it.
constexpr bool scans(Collective collective) {
  return collective == Collective::scan || collective == Collective::exscan;
}
// Whether the collective has a reduction operation; whether it has a root.
constexpr bool reduces(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter || scans(collective);
}
constexpr bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

// How many blocks of `count` elements the two buffers hold.
struct Extent {
  std::size_t send = 1;
  std::size_t recv = 1;
};
constexpr Extent extent_of(Collective collective, int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  switch (collective) {
    case Collective::allgather:
    case Collective::gather:
      return {1, p};
    case Collective::reduce_scatter:
    case Collective::scatter:
      return {p, 1};
    case Collective::alltoall:
      return {p, p};
    default:
      return {1, 1};
  }
}

// Sizes by which algorithms cut their work. All ranks agree on them. Tests shrink them, so that
// small vectors take the pipelined paths.
struct Tuning {
  std::size_t chunk_bytes = std::size_t{64} << 10;
  int lanes = 4;                // chunks of one sequence that are in flight at once
  std::uint32_t epoch = 0;      // version of the agreed parameters by which is chosen
  double start_bytes = 25'000;  // alpha / beta: bytes that take as long as starting a message
  bool copies = false;          // private memory is copied out of the peers' processes
};

// Ways in which an algorithm can move its data.
enum class Variant : std::uint8_t {
  usual,         // by the communicator's tuning
  copies,        // memory that peers do not share is copied across processes
  long_chunks,   // four times as long
  short_chunks,  // a quarter as long
};
inline constexpr std::size_t variant_count = 4;
std::string_view name_of(Variant variant);
Tuning varied(Tuning tuning, Variant variant);

// The factor by which every input of a sum is multiplied first, if `used`: the element at `where`,
// read when the call runs, or, if `where` is null, the one in `bits`.
struct Factor {
  ElementBits bits = {};
  const std::byte* where = nullptr;
  bool used = false;
};

// Whose time says how long a call takes.
enum class WhoseTime : std::uint8_t {
  everyones,  // no rank can end the call before all have begun it
  slowest,    // some ranks end early, so rank 0 is told; see slowest_rank.hpp
  nobodys,    // nothing is learnt from it
};

struct Algorithm;
struct ToldRun;

// What rank 0 is told: a call's time, or the mean of a run, and its bytes.
struct SlowestTime {
  double seconds = 0;  // infinite: a rank does not know
  std::size_t bytes = 0;
};

// How a dense call is made, the same on all ranks. Known once the call has its number.
struct CallPlan {
  const Algorithm* algorithm = nullptr;
  Variant variant = Variant::usual;
  bool is_timed = false;           // the call's time is to be learnt from
  bool is_trial = false;           // of a rival of what is chosen
  bool is_told = false;            // rank 0 is told the slowest rank's time, of a run at its end
  std::uint8_t place = 0;          // in the run
  ToldRun* run = nullptr;          // of which this call is one
  SlowestTime* slowest = nullptr;  // where that time goes, if anywhere
};

// The arguments of a dense collective. `count`: elements of send and recv, or of each of their
// blocks. Where these are uneven, what stands for it in choices: their mean, rounded up, or what
// alltoall_count() says. A buffer that this rank's role does not use is null.
struct CollectiveArgs {
  Collective collective = Collective::allreduce;
  Bytes send = {};
  Bytes recv = {};
  std::size_t count = 0;
  DType type = DType::f32;
  Op op = Op::sum;
  int root = 0;  // the caller's rank; for an algorithm, the place in its Call's order
  Tuning tuning = {};
  CallPlan plan = {};
  Factor factor = {};
  float divisor = 0;  // avg divides the sum by it; 0: by the number of ranks
  WireCoding wire = {};
  UnevenBlocks uneven = {};
};

// As above; "allgatherv" where blocks are uneven.
std::string_view name_of(const CollectiveArgs& args);

// Ranks of an alltoall with uneven blocks know only their own, so that choices take it for one of
// blocks of this many elements.
constexpr std::size_t alltoall_count(DType type) { return (std::size_t{64} << 10) / size_of(type); }

// What choices and costs may depend on; the same on all ranks.
struct Shape {
  int ranks = 1;
  std::size_t bytes = 0;  // of `count` elements: the vector, or one block if buffers hold several
  Tuning tuning;
  bool views = false;           // every two ranks reach each other's memory, or at least may
  bool oversubscribed = false;  // a host has more ranks than cores
  int hosts = 1;                // that run ranks
  bool devices = false;         // every rank's process uses a CUDA device
  int ranks_a_host = 1;         // at most; they share its links to other hosts
  bool hosts_share = true;      // the ranks of a host share memory

  constexpr bool multi_host() const { return hosts > 1; }
};

// A link and a core: seconds per message, per byte sent, per byte reduced.
struct LinkCost {
  double alpha = 0;
  double beta = 0;
  double gamma = 0;
  // What each further message of a round takes that goes to or comes from another peer: a core's
  // time, which does not pass while messages travel. The o of LogP [D. Culler et al., PPoPP 1993].
  double message = 0;
};

// Who sends to whom at one time; decides what ports that ranks share carry.
enum class SendPattern : std::uint8_t {
  neighbours,  // each rank sends to the next one in the order, which may be on its host
  partners,    // each rank has one partner at a time, near or far
  everyone,    // each rank sends to all others at once
};

// What an algorithm needs of hosts; where they have one rank each, another one does the same.
enum class HostNeed : std::uint8_t {
  none,
  several,  // ranks of one of them, which share memory
  even,     // and all have as many
};

inline constexpr int any_ranks = std::numeric_limits<int>::max();

struct Algorithm {
  std::string_view name;
  Collective collective;
  Task<Error> (*run)(Call& call, CollectiveArgs args);
  // Seconds on ideal full-duplex links: exact where every block is one chunk, else an estimate.
  double (*cost)(const Shape& shape, const LinkCost& link);
  SendPattern pattern = SendPattern::partners;
  int ranks_max = any_ranks;
  bool can_copy = false;  // whether it differs where Tuning::copies is set
  HostNeed needs_hosts = HostNeed::none;
  bool sends_whole = false;  // whether messages are as long as the vector, so that it must be short
  bool needs_views = false;  // whether another one does the same where ranks share no memory
};

constexpr bool has_hosts(HostNeed need, const Shape& shape) {
  if (need == HostNeed::none) return true;
  if (shape.devices || !shape.hosts_share) return false;  // has not run on devices
  const bool are_even = shape.ranks == shape.hosts * shape.ranks_a_host;
  return shape.hosts > 1 && shape.ranks_a_host > 1 && (are_even || need == HostNeed::several);
}

// Whether it can make calls of this shape, and is not another one there.
constexpr bool serves(const Algorithm& algorithm, const Shape& shape) {
  const auto lanes = static_cast<std::size_t>(shape.tuning.lanes);
  const bool is_short = shape.bytes <= lanes * shape.tuning.chunk_bytes;
  return shape.ranks <= algorithm.ranks_max && has_hosts(algorithm.needs_hosts, shape) &&
         (shape.views || !algorithm.needs_views) && (is_short || !algorithm.sends_whole);
}

std::span<const Algorithm> algorithms();
// nullptr if there is none of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

// Runs all strands, which the caller's frame must keep.
template <std::size_t n>
WhenAll when_all(std::array<Task<Error>, n>& strands) {
  return WhenAll(std::span<Task<Error>>(strands));
}

}  // namespace pith
