// How much of the messages of pairs a rank may send before their receives are called, so that what
// lies with the receiver is bounded, however many peers send, and in whatever order it receives.
//
// The head of a message goes at once as long as the pair's window has room for it, and of a short
// message that is all. The rest, or a message for which there is no room, waits until its receiver
// says that it receives it, and with that what of the window is free again. The latter is announced
// by an empty message, and later ones of the pair wait behind it, for else there would be as many
// announcements at the receiver as messages. So a message waits for its own receive or for that of
// an earlier message of the pair, which is called before its own: no order of calls that is legal
// can deadlock.
//
// Not thread-safe: whoever drives the engine uses it.
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/call_number.hpp"
#include "core/scheduler.hpp"

namespace pith {

class PairWindows {
 public:
  explicit PairWindows(std::size_t ranks)
      : PairWindows(ranks, std::clamp(all_bytes / std::max<std::size_t>(1, ranks), least, most)) {}
  // `window`: bytes of each pair; the same on all ranks.
  PairWindows(std::size_t ranks, std::size_t window) : window_(window), pairs_(ranks) {}

  // The longest head; the same on all ranks.
  std::size_t head_bytes() const { return std::min(window_ / 2, longest_head); }

  // At the sender of messages to `peer`. Whether a head may go at once; it counts if so.
  bool admit(int peer, std::size_t head) {
    Pair& pair = at(peer);
    if (pair.sent - pair.acknowledged + room_of(head) > window_) return false;
    pair.sent += room_of(head);
    return true;
  }
  // What `taken` was at `peer`; older news may come later.
  void acknowledge(int peer, std::uint64_t taken) {
    Pair& pair = at(peer);
    pair.acknowledged = std::max(pair.acknowledged, taken);
  }

  // A message that must wait behind an earlier one. Lives in the frame of who waits.
  struct Waiter {
    std::uint32_t number = 0;
    std::coroutine_handle<> handle;
    Waiter* next = nullptr;
  };
  // Whether an earlier message to `peer` is announced, or waits.
  bool is_behind(int peer, std::uint32_t number) const {
    const Pair& pair = pairs_[static_cast<std::size_t>(peer)];
    return (pair.waiting && is_later_message(number, pair.waiting->number)) ||
           std::ranges::any_of(pair.announced, [=](std::uint32_t other) {
             return is_later_message(number, other);
           });
  }
  void wait(int peer, Waiter& waiter) {
    Waiter** at = &this->at(peer).waiting;
    // Nearly always at the end, which is remembered.
    Waiter* const last = this->at(peer).last_waiting;
    if (*at && is_later_message(waiter.number, last->number)) at = &last->next;
    while (*at && is_later_message(waiter.number, (*at)->number)) at = &(*at)->next;
    waiter.next = *at;
    *at = &waiter;
    if (!waiter.next) this->at(peer).last_waiting = &waiter;
  }
  // The first of those that wait goes on, unless it is still behind another one.
  void wake_next(int peer, Scheduler& scheduler) {
    Pair& pair = at(peer);
    Waiter* const first = pair.waiting;
    if (!first) return;
    pair.waiting = first->next;
    if (!is_behind(peer, first->number)) return scheduler.make_ready(first->handle);
    pair.waiting = first;
  }
  void announced(int peer, std::uint32_t number) { at(peer).announced.push_back(number); }
  // Its receive has been called, or it has failed.
  void answered(int peer, std::uint32_t number, Scheduler& scheduler) {
    std::erase(at(peer).announced, number);
    wake_next(peer, scheduler);
  }

  // At their receiver. A head has come that went at once.
  void take(int peer, std::size_t head) { at(peer).taken += room_of(head); }
  // Of all those from `peer`, with what it takes to keep them.
  std::uint64_t taken(int peer) const { return pairs_[static_cast<std::size_t>(peer)].taken; }

 private:
  static constexpr std::size_t all_bytes = std::size_t{2} << 20;
  static constexpr std::size_t least = std::size_t{32} << 10;
  static constexpr std::size_t most = std::size_t{512} << 10;
  static constexpr std::size_t longest_head = std::size_t{64} << 10;
  // Even an empty message must be kept somewhere.
  static std::uint64_t room_of(std::size_t head) { return head + 256; }

  struct Pair {
    std::uint64_t sent = 0;
    std::uint64_t acknowledged = 0;
    std::uint64_t taken = 0;
    std::vector<std::uint32_t> announced;  // mostly one
    Waiter* waiting = nullptr;             // by their numbers
    Waiter* last_waiting = nullptr;        // where any waits
  };
  Pair& at(int peer) { return pairs_[static_cast<std::size_t>(peer)]; }

  std::size_t window_;
  std::vector<Pair> pairs_;  // by the caller's ranks
};

}  // namespace pith
