// A reliable connection to one peer: an RC queue pair, from its making to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/verbs/verbs_rail.hpp"

namespace pith {

// What a peer has to know to connect to a queue pair.
struct VerbsEnd {
  std::uint32_t number = 0;
  std::uint32_t first_packet = 0;  // 24 bits; random, so that packets of earlier pairs do not fit
};

struct VerbsDepth {
  std::uint32_t sends = 0;
  std::uint32_t receives = 0;
  std::uint32_t inlined = 0;  // bytes
};

class VerbsQueuePair {
 public:
  VerbsQueuePair() = default;
  // `depth.inlined` becomes what the device grants.
  static Expected<VerbsQueuePair> make(const VerbsRail& rail, VerbsDepth& depth);
  VerbsQueuePair(VerbsQueuePair&& other) noexcept
      : rail_(other.rail_), pair_(std::exchange(other.pair_, nullptr)), end_(other.end_) {}
  VerbsQueuePair& operator=(VerbsQueuePair&& other) noexcept;
  ~VerbsQueuePair() { destroy(); }

  explicit operator bool() const { return pair_ != nullptr; }
  const VerbsEnd& end() const { return end_; }
  // Can receive from the peer's end. Afterwards receives may be posted, and open() lets it send.
  Error meet(const VerbsPlace& place, const VerbsEnd& theirs);
  Error open();
  // All that was posted ends, with completions that say so; once these have come, the device
  // neither reads nor writes memory for this pair.
  Error stop();
  // After that: it can meet a peer again, with another first packet.
  Error reset(std::uint32_t first_packet);
  void destroy();

  const std::string& port() const { return rail_->name(); }
  const char* status(ibv_wc_status status) const { return rail_->verbs().wc_status_str(status); }

  // 0, or an errno.
  int post(ibv_send_wr& work) {
    ibv_send_wr* bad = nullptr;
    return rail_->verbs().post_send(pair_, &work, &bad);
  }
  int post(ibv_recv_wr& work) {
    ibv_recv_wr* bad = nullptr;
    return rail_->verbs().post_recv(pair_, &work, &bad);
  }

 private:
  Error failed(const char* what, int error) const;
  Error make_ready();

  const VerbsRail* rail_ = nullptr;
  ibv_qp* pair_ = nullptr;
  VerbsEnd end_;
};

// 24 random bits; fails where the system has none.
Expected<std::uint32_t> random_first_packet();

}  // namespace pith
