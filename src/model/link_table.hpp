// What a process has learnt of its links and of its own work. The link estimates and the rates are
// one kind of thing: a start and a time per unit. Nominal until samples come.
//
// Not for several threads; allocates only when it is made, saved and restored.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/memory.hpp"
#include "model/known_links.hpp"
#include "model/link_estimate.hpp"

namespace pith {

// How bytes pass between ranks of a host: read in place, copied by the peer or the kernel out of
// its private memory, or as messages through slots.
enum class HostLink : std::uint8_t { views, copies, messages };
inline constexpr std::size_t host_link_count = 3;

// What a rank does itself. The units of its samples: bytes of the result; elements examined;
// elements written; pairs added to a sum; bytes of the result.
enum class WorkKind : std::uint8_t { reduce, select, encode, decode, cast };
inline constexpr std::size_t work_kind_count = 5;

class LinkTable {
 public:
  // Of files: those of 91 hosts, each pair measured.
  static constexpr std::size_t most_paths = 4096;

  // `paths`: how many links of the network are told apart, at least one: one for all hosts, or one
  // for each pair of hosts, or for each adapter.
  explicit LinkTable(std::size_t paths = 1, const LinkEstimate::Options& options = {});

  LinkEstimate& host(HostLink link) { return host_[static_cast<std::size_t>(link)]; }
  LinkEstimate& path(std::size_t which) { return paths_[which]; }
  std::size_t paths() const { return paths_.size(); }
  LinkEstimate& work(WorkKind kind, MemoryKind memory) {
    return work_[static_cast<std::size_t>(memory)][static_cast<std::size_t>(kind)];
  }
  // What the cost functions of algorithms take: a link, and how fast sums in this memory are.
  LinkCost cost(const LinkEstimate& link, MemoryKind memory) const;

  // The link on which whole calls of the job take their times, which has in it what else makes them
  // late: ports that several transfers share, ranks that share cores.
  struct OfCalls {
    Estimated alpha;
    Estimated beta;
  };
  const std::optional<OfCalls>& calls() const { return calls_; }
  void set_calls(const OfCalls& calls) { calls_ = calls; }
  // Whose links these are.
  const JobPlaces& places() const { return places_; }
  void set_places(const JobPlaces& places) { places_ = places; }
  // In few numbers.
  KnownLinks known() const;

  // "pith links 2", whose links, and a line for each estimate that is not nominal: its name, alpha,
  // its log_sd, beta, its log_sd.
  // Not JSON: nlohmann-json is a dependency of tools and measurements only, and may be missing.
  std::string save() const;
  // The lines become guesses of small weight. Names that this table does not have are passed over:
  // another run may have had more hosts. After an error nothing has changed.
  Error restore(std::string_view text);

 private:
  using Works = std::array<LinkEstimate, work_kind_count>;
  static Works nominal_works(MemoryKind memory, const LinkEstimate::Options& options);
  LinkEstimate* find(std::string_view name);
  KnownLink slowest_path() const;

  std::array<LinkEstimate, host_link_count> host_;
  std::array<Works, 2> work_;  // by kind of memory
  std::vector<LinkEstimate> paths_;
  std::optional<OfCalls> calls_;
  JobPlaces places_;
};

}  // namespace pith
