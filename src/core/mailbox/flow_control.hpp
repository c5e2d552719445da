// Counts waiting receives and stored bytes per peer, to decide whether a transport may take more
// from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pith {

class FlowControl {
 public:
  // Limit of the stored bytes of all peers.
  std::size_t total_limit = std::size_t{2} << 20;

  explicit FlowControl(int peers) : pages_((static_cast<std::size_t>(peers) + page - 1) / page) {}

  // A peer's counts are created when it is first named. If there is no memory for them, these two
  // functions throw std::bad_alloc and change nothing.
  void begin_wait(int peer) {
    ++counts(peer).waiting;
    ++waiting_;
  }
  void add_backlog(int peer, std::size_t bytes) {
    counts(peer).backlog += bytes;
    backlog_ += bytes;
  }
  void end_wait(int peer) {
    --counts(peer).waiting;
    --waiting_;
  }
  void remove_backlog(int peer, std::size_t bytes) {
    counts(peer).backlog -= bytes;
    backlog_ -= bytes;
  }

  bool accepts(int peer, std::size_t limit) const {
    const Counts* of_peer = find(peer);
    if (!of_peer || of_peer->waiting != 0 || of_peer->backlog == 0) return true;
    return of_peer->backlog < limit && backlog_ < total_limit;
  }
  bool awaited(int peer) const {
    const Counts* of_peer = find(peer);
    return of_peer && of_peer->waiting != 0;
  }
  std::size_t backlog_of(int peer) const {
    if (backlog_ == 0) return 0;
    const Counts* of_peer = find(peer);
    return of_peer ? of_peer->backlog : 0;
  }
  // Of all peers.
  std::size_t waiting() const { return waiting_; }
  std::size_t backlog() const { return backlog_; }

 private:
  struct Counts {
    std::uint32_t waiting = 0;  // receives
    std::size_t backlog = 0;    // bytes
  };
  static constexpr std::size_t page = 64;

  Counts& counts(int peer) {
    auto& slot = pages_[static_cast<std::size_t>(peer) / page];
    if (!slot) slot = std::make_unique<std::array<Counts, page>>();
    return (*slot)[static_cast<std::size_t>(peer) % page];
  }
  const Counts* find(int peer) const {
    const auto& slot = pages_[static_cast<std::size_t>(peer) / page];
    return slot ? &(*slot)[static_cast<std::size_t>(peer) % page] : nullptr;
  }

  std::vector<std::unique_ptr<std::array<Counts, page>>> pages_;
  std::size_t waiting_ = 0;
  std::size_t backlog_ = 0;
};

}  // namespace pith
