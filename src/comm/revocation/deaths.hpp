// Ranks whose process or host is gone. A death alone revokes nothing. What the dead rank had sent
// is delivered; a running call fails if it waits for more or must send to that rank; calls that
// begin later fail at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "comm/links.hpp"

namespace pith {

// Thread-safe.
class Deaths {
 public:
  explicit Deaths(Links& links) : links_(links) {}

  // Called once per dead rank; the error names the rank.
  void add(const Error& error);
  bool any() const { return any_.load(std::memory_order_acquire); }
  // No error if no rank has died; of(): if this rank has not.
  Error first() const;
  Error of(int rank) const;
  // The error of a dead rank that a call waits for in vain while no connection reports it: the rank
  // may have been given up though its process only stopped. With the token, some times a second.
  Error missed();

 private:
  struct Death {
    Error error;
    std::uint64_t heard = 0;     // heard_from() at the last look
    std::uint64_t since_ns = 0;  // waited for in vain since then; 0: not waited for
    bool is_late = false;        // found overdue once
  };
  bool is_late(Death& death, std::uint64_t now_ns);
  bool is_waited_for(int rank);

  Links& links_;
  mutable std::mutex mutex_;
  std::vector<Death> deaths_;  // in the order of the news
  std::atomic<bool> any_{false};
};

}  // namespace pith
