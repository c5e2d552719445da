#include "transport/verbs/verbs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "core/compute.hpp"
#include "core/log.hpp"
#include "transport/verbs/verbs_ranks.hpp"

namespace pith {
namespace {

// Of all peers together, so that a rank of many does not lock more memory than it uses. A slot
// holds a frame of 16,448 bytes, and each peer on another host has the window and 8 more for
// credits: of 2 such ranks each locks 0.6 MiB, of 8 4.4, of 64 40, of 128 48, of 256 64, of 1,024
// 257 MiB.
//
// No shared receive queue: its slots would be taken by whoever sends first. A device that finds
// none asks its peer to wait, all peers alike, until this rank drives its end again; and frames
// that wait for a receive lie in their slots, so that one peer could stop all others. Only credits
// that add up to the slots prevent this, and these are what each pair has. Fewer slots than that
// would begin to matter above 256 ranks, where the window cannot shrink any more.
constexpr std::uint32_t frames_of_all = 2048;
constexpr std::uint32_t frames_least = 8;
constexpr std::uint32_t frames_most = 32;

constexpr std::size_t all_completions = std::numeric_limits<std::size_t>::max();

std::uint32_t window_for(int ranks) {
  return std::clamp(frames_of_all / static_cast<std::uint32_t>(ranks), frames_least, frames_most);
}

}  // namespace

Expected<std::unique_ptr<VerbsTransport>> VerbsTransport::create(
    const VerbsLibrary& library, const VerbsWish& wish, Scheduler& scheduler, Mailbox& mailbox,
    int rank, int ranks, const VerbsOptions& options) {
  auto rails = VerbsRail::open_all(library, wish);
  if (!rails) return rails.error();
  if (rails->size() > verbs_rails_max) rails->resize(verbs_rails_max);
  VerbsOptions possible = options;
  if (options.watch && options.cache_bytes != 0 && MemoryEvents::begin()) possible.cache_bytes = 0;
  std::unique_ptr<VerbsTransport> made = std::make_unique<VerbsRanks>(
      library, std::move(*rails), scheduler, mailbox, rank, ranks, possible);
  return made;
}

VerbsRanks::VerbsRanks(const VerbsLibrary& library, Rails rails, Scheduler& scheduler,
                       Mailbox& mailbox, int rank, int ranks, const VerbsOptions& options)
    : rails_(std::move(rails)),
      mailbox_(mailbox),
      rank_(rank),
      ranks_(ranks),
      window_(options.window != 0 ? options.window : window_for(ranks)),
      slots_(*rails_[0]),
      memory_(library, rails_, options.cache_bytes),
      shared_{&scheduler, &memory_, options.write_bytes},
      direct_(options.direct && options.cache_bytes != 0 &&
              std::ranges::all_of(rails_, [](const auto& rail) { return rail->takes_dmabufs(); })),
      completions_(rails_),
      by_rank_(static_cast<std::size_t>(ranks)) {}

VerbsRanks::~VerbsRanks() {
  for (VerbsPair* pair : pairs_) {
    pair->close(Error(Code::invalid_usage, "this rank has closed its connections"));
  }
}

std::size_t VerbsRanks::direct_bytes(Compute& compute) const {
  const bool can = direct_ && compute.network_memory() != 0 && compute.exporter();
  return can ? shared_.write_bytes : no_bytes;
}

// The registration stays, unless the cache is too full to keep it.
bool VerbsRanks::reaches(Scratch& scratch) {
  VerbsRegion* const region = memory_.acquire(scratch);
  if (region) memory_.release(*region);
  return region != nullptr;
}

bool VerbsRanks::start(Send& send) {
  VerbsPair* pair = by_rank_[static_cast<std::size_t>(send.peer)].get();
  if (pair) return pair->start(send);
  send.error = Error(Code::internal, fmt::format("no connection to rank {}", send.peer));
  return true;
}

// Takes the devices' completions; true if there were any.
bool VerbsRanks::gather() {
  const Expected<bool> any = completions_.gather();
  if (any) return *any;
  lose_all(any.error().message());
  return true;
}

// A device that has failed.
void VerbsRanks::lose_all(std::string_view how) {
  for (VerbsPair* pair : pairs_) {
    if (pair->is_live()) pair->lose(how);
  }
}

// Upon as many completions, or all. That something has been sent is no progress: else a peer that
// has stopped, but whose device answers probes, would never be given up.
bool VerbsRanks::act(std::size_t most) {
  bool any = false;
  for (; most > 0 && !completions_.empty(); --most) {
    const ibv_wc completion = completions_.take();
    const VerbsTag tag = VerbsTag::unpack(completion.wr_id);
    VerbsPair* pair = by_rank_[tag.peer].get();
    if (!pair || tag.work == VerbsWork::none) continue;
    any |= tag.work != VerbsWork::frame_sent || completion.status != IBV_WC_SUCCESS;
    pair->act(completion);
  }
  if (completions_.empty()) completions_.clear();
  return any;
}

Front VerbsRanks::take_front(int peer, const Header& header, const FrontReader& reader) {
  if (completions_.empty()) gather();
  Front front = Front::none;
  while (!completions_.empty()) {
    const ibv_wc& next = completions_.next();
    VerbsPair* pair = by_rank_[VerbsTag::unpack(next.wr_id).peer].get();
    if (pair && pair->rank() == peer) front = pair->take_front(next, header, reader);
    if (front == Front::other) return front;
    if (front == Front::taken) {
      completions_.take();
      break;
    }
    try {
      act(1);
    } catch (const std::bad_alloc&) {  // its frame stays the first, for progress() to report
      return Front::other;
    }
  }
  if (completions_.empty()) completions_.clear();
  return front;
}

// Last in progress(): the owner may call back into this transport.
bool VerbsRanks::report_lost() {
  bool any = false;
  for (VerbsPair* pair : pairs_) {
    const Error loss = pair->take_loss();
    if (loss && on_peer_lost) on_peer_lost(pair->rank(), loss);
    any |= static_cast<bool>(loss);
  }
  return any;
}

bool VerbsRanks::progress() {
  if (std::exchange(armed_, false)) {
    for (const auto& rail : rails_) rail->disarm();
    heed_events();
  }
  gather();
  bool moved = act(all_completions);
  for (VerbsPair* pair : pairs_) moved |= pair->progress();
  return report_lost() || moved;
}

bool VerbsRanks::busy() const {
  return mailbox_.waiting() != 0 ||
         std::ranges::any_of(pairs_, [](const VerbsPair* pair) { return pair->busy(); });
}

bool VerbsRanks::arm() {
  const auto can = [](const VerbsPair* pair) { return pair->can_progress(); };
  if (!completions_.empty() || std::ranges::any_of(pairs_, can)) return false;
  armed_ = true;
  for (const auto& rail : rails_) {
    if (const Error error = rail->arm()) {
      lose_all(error.message());
      return false;
    }
  }
  // What came before that has sent no wake-up.
  return !gather();
}

void VerbsRanks::heed_events() {
  for (const auto& rail : rails_) {
    const VerbsRail::Event event = rail->take_event();
    if (!event.words.empty()) log(LogLevel::warn, fmt::format("rank {}: {}", rank_, event.words));
    if (event.is_end) lose_all(event.words);
  }
}

void VerbsRanks::look_at_links(std::uint64_t now_ns) {
  heed_events();
  for (VerbsPair* pair : pairs_) pair->look(now_ns);
}

void VerbsRanks::quiesce(const CommState& comm, const Error& error) {
  for (VerbsPair* pair : pairs_) pair->quiesce(comm, error);
}

void VerbsRanks::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const VerbsPair* pair : pairs_) pair->for_each_sending(see);
}

VerbsSupport verbs_support(const VerbsWish& wish, std::size_t cache_bytes) {
  VerbsSupport support;
  const auto rails = VerbsRail::open_all(verbs_library(), wish);
  support.why_not = rails.error();
  if (support.why_not) return support;
  for (const auto& rail : *rails) support.ports.push_back(rail->name());
  support.why_copies = cache_bytes == 0 ? Error(Code::invalid_argument, "cache=0 of PITH_VERBS")
                                        : MemoryEvents::begin();
  return support;
}

}  // namespace pith
