// Flow control of point-to-point messages: limits what a rank sends before the receives are called,
// so that the receiver's memory is bounded, however many peers send and in whatever order it
// receives.
//
// The head of a message is sent at once if the pair's window has room for it; a short message is
// only a head. The rest, or a message without room, waits until the receiver tells that the receive
// has been called, and with it how much of the window is free again. A message without room is
// announced by an empty message. Later messages of the pair wait behind it, since otherwise the
// receiver would get as many announcements as messages. So a message waits for its own receive or
// for that of an earlier message of the pair, which is called before its own: no legal order of
// calls can deadlock.
//
// Not thread-safe: for the thread that drives the engine.
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

  // At the sender. Whether a head may go to `peer` at once; counts it if so.
  bool admit(int peer, std::size_t head) {
    Pair& pair = at(peer);
    if (pair.sent - pair.acknowledged + room_of(head) > window_) return false;
    pair.sent += room_of(head);
    return true;
  }
  // At the sender. taken() as the peer has told it; an older value may arrive later.
  void acknowledge(int peer, std::uint64_t taken) {
    Pair& pair = at(peer);
    pair.acknowledged = std::max(pair.acknowledged, taken);
  }

  // A message that must wait behind an earlier one. Lives in the frame of the waiting coroutine.
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
    // Nearly always appended: last_waiting saves the walk.
    Waiter* const last = this->at(peer).last_waiting;
    if (*at && is_later_message(waiter.number, last->number)) at = &last->next;
    while (*at && is_later_message(waiter.number, (*at)->number)) at = &(*at)->next;
    waiter.next = *at;
    *at = &waiter;
    if (!waiter.next) this->at(peer).last_waiting = &waiter;
  }
  // Resumes the first waiting message, unless it is still behind another one.
  void wake_next(int peer, Scheduler& scheduler) {
    Pair& pair = at(peer);
    Waiter* const first = pair.waiting;
    if (!first) return;
    pair.waiting = first->next;
    if (!is_behind(peer, first->number)) return scheduler.make_ready(first->handle);
    pair.waiting = first;
  }
  void announced(int peer, std::uint32_t number) { at(peer).announced.push_back(number); }
  // The receive of an announced message has been called, or the message has failed.
  void answered(int peer, std::uint32_t number, Scheduler& scheduler) {
    std::erase(at(peer).announced, number);
    wake_next(peer, scheduler);
  }

  // At the receiver. Counts a head that was sent at once.
  void take(int peer, std::size_t head) { at(peer).taken += room_of(head); }
  // At the receiver. Bytes of all heads from `peer`, with what it takes to keep them.
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
    Waiter* waiting = nullptr;             // sorted by number
    Waiter* last_waiting = nullptr;        // valid if any waits
  };
  Pair& at(int peer) { return pairs_[static_cast<std::size_t>(peer)]; }

  std::size_t window_;
  std::vector<Pair> pairs_;  // by the caller's ranks
};

}  // namespace pith
