// When a listener that strangers can reach takes another call: they may take neither all
// descriptors of the process nor all of a start-up's time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith {

class Door {
 public:
  // Callers who have not proved themselves; more wait in the kernel's queue.
  static constexpr std::size_t most = 256;
  static constexpr std::uint64_t greeting_ns = 5'000'000'000;  // for one handshake
  static constexpr std::uint64_t patience_ns = 500'000'000;    // with the oldest, when full

  // A call could not be taken, for no descriptors are left.
  void shut(std::uint64_t now) { shut_until_ns_ = now + shut_ns; }

  bool is_full(std::size_t callers, std::uint64_t now) const {
    return callers >= most || now < shut_until_ns_;
  }
  // How long the oldest of these callers may stay.
  std::uint64_t stay_ns(std::size_t callers, std::uint64_t now) const {
    return is_full(callers, now) ? patience_ns : greeting_ns;
  }
  // Of interest while it lies ahead.
  std::uint64_t opens_at_ns() const { return shut_until_ns_; }

 private:
  static constexpr std::uint64_t shut_ns = 100'000'000;
  std::uint64_t shut_until_ns_ = 0;
};

}  // namespace pith
