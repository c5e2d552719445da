#include "startup/descriptor_share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/descriptor_limit.hpp"
#include "core/packing.hpp"
#include "core/per_process.hpp"
#include "crypto/random_bytes.hpp"

namespace pith {

namespace {

struct ProcessName {
  ProcessName() {
    if (fill_random(std::as_writable_bytes(std::span(&value, 1)))) value = 0;
  }
  std::uint64_t value = 0;
};

struct Process {
  int first_rank = 0;
  std::uint64_t ranks = 0;
  std::uint64_t left = 0;  // the least that any of its ranks counted, with all listeners open
  std::uint64_t limit = 0;
  std::uint64_t fixed = 0;
  std::uint64_t peers = 0;
  std::uint64_t later_peers = 0;
};

std::map<std::uint64_t, Process> processes_of(std::span<const DescriptorNeed> ranks) {
  std::map<std::uint64_t, Process> all;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto& [share, peers, other, later_peers] = ranks[r];
    const auto [place, is_new] = all.try_emplace(share.process);
    Process& process = place->second;
    if (is_new) {
      process.first_rank = static_cast<int>(r);
      process.left = share.left;
      process.limit = share.limit;
    }
    ++process.ranks;
    process.left = std::min(process.left, share.left);
    process.fixed += share.to_come + other;
    process.peers += peers;
    process.later_peers += later_peers;
  }
  return all;
}

Error no_room(const Process& process) {
  const std::uint64_t needed = process.fixed + process.peers;
  const std::string who = process.ranks == 1 ? fmt::format("rank {} needs", process.first_rank)
                                             : fmt::format("the {} ranks of rank {}'s process need",
                                                           process.ranks, process.first_rank);
  return {
      Code::system,
      fmt::format("{} {} more descriptors for connections to the others, and {} are left under the "
                  "hard limit of {} (ulimit -Hn); expected a limit of at least {}",
                  who, needed, process.left, process.limit, process.limit + needed - process.left),
      process.first_rank};
}

// `count` pairs have so many connections each, from 1 to `most`.
int streams_in(std::uint64_t room, std::uint64_t count, int most) {
  if (count == 0) return most;
  const auto limit = static_cast<std::uint64_t>(most);
  return static_cast<int>(std::clamp<std::uint64_t>(room / count, 1, limit));
}

PairStreams all_streams(const Process& process, int most) {
  const int each =
      streams_in(process.left - process.fixed, process.peers + process.later_peers, most);
  return {each, each, false};
}

PairStreams streams_on_demand(const Process& process, int most) {
  const std::uint64_t left = process.left - process.fixed;
  // Requests and handshakes take some for a while.
  const std::uint64_t reserve = 4 + std::min<std::uint64_t>(64, process.later_peers);
  const std::uint64_t room = left - std::min(left, reserve);
  const std::uint64_t pairs = process.peers + process.later_peers;
  const int later = process.later_peers == 0 ? most : streams_in(room, pairs, most);
  const std::uint64_t later_ones = process.later_peers * static_cast<std::uint64_t>(later);
  const std::uint64_t now = room >= pairs ? room - later_ones : room / 2;
  return {streams_in(now, process.peers, most), later, true};
}

}  // namespace

DescriptorShare DescriptorShare::of_this_process(std::size_t most, std::size_t to_come) {
  // A count that reached `most` is reported as plenty.
  constexpr std::uint64_t enough = std::numeric_limits<std::uint64_t>::max() / 2;
  const std::uint64_t counted = descriptors_left(most);
  return {PerProcess<ProcessName>::get().value, counted < most ? counted : enough, to_come,
          hard_descriptor_limit()};
}

std::string DescriptorShare::pack() const {
  return Packer().value(process).value(left).value(to_come).value(limit).take();
}

DescriptorShare DescriptorShare::unpack(std::string_view text) {
  Unpacker in(text);
  DescriptorShare share;
  share.process = in.value<std::uint64_t>();
  share.left = in.value<std::uint64_t>();
  share.to_come = in.value<std::uint64_t>();
  share.limit = in.value<std::uint64_t>();
  return share;
}

Expected<PairStreams> streams_with_room(std::span<const DescriptorNeed> ranks, int most,
                                        bool on_demand) {
  const auto all = processes_of(ranks);
  const Process* without = nullptr;
  for (const auto& [name, process] : all) {
    const std::uint64_t least = process.fixed + process.peers;
    if (process.left < least && (!without || process.first_rank < without->first_rank)) {
      without = &process;
    }
    on_demand = on_demand || process.left < least + process.later_peers;
  }
  if (without) return no_room(*without);
  PairStreams streams{most, most, on_demand};
  for (const auto& [name, process] : all) {
    const PairStreams own =
        on_demand ? streams_on_demand(process, most) : all_streams(process, most);
    streams.at_start = std::min(streams.at_start, own.at_start);
    streams.later = std::min(streams.later, own.later);
  }
  return streams;
}

}  // namespace pith
