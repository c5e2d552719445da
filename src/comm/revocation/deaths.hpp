// Ranks whose process or host is gone. A death alone revokes nothing: what the dead had sent is
// delivered, a running call fails where it waits for more or has to send to them, and calls that
// begin afterwards fail at once.
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

  // Once for each; the error names it.
  void add(const Error& error);
  bool any() const { return any_.load(std::memory_order_acquire); }
  // No error where there is none.
  Error first() const;
  Error of(int rank) const;
  // The error of one that is waited for in vain, where no connection tells: a rank may have been
  // given up though its process has only stopped. With the token, some times a second.
  Error missed();

 private:
  struct Death {
    Error error;
    std::uint64_t heard = 0;     // from it, at the last look
    std::uint64_t since_ns = 0;  // it has been waited for in vain; 0: it is not
    bool is_late = false;        // for too long, as was seen once
  };
  bool is_late(Death& death, std::uint64_t now_ns);
  bool is_waited_for(int rank);

  Links& links_;
  mutable std::mutex mutex_;
  std::vector<Death> deaths_;  // in the order of the news
  std::atomic<bool> any_{false};
};

}  // namespace pith
