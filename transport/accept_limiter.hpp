// When a listener that anybody on the network can reach accepts another connection. Unauthenticated
// ones may use up neither the process's descriptors nor the time of a start-up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith {

class AcceptLimiter {
 public:
  // Connections in their handshake; more wait in the kernel's backlog.
  static constexpr std::size_t most = 256;
  static constexpr std::uint64_t handshake_ns = 5'000'000'000;
  static constexpr std::uint64_t patience_ns = 500'000'000;  // for the oldest one, when full

  // A connection could not be accepted because no descriptors are left.
  void pause(std::uint64_t now) { paused_until_ns_ = now + pause_ns; }

  bool is_full(std::size_t unauthenticated, std::uint64_t now) const {
    return unauthenticated >= most || now < paused_until_ns_;
  }
  // How long the oldest unauthenticated connection may stay.
  std::uint64_t stay_ns(std::size_t unauthenticated, std::uint64_t now) const {
    return is_full(unauthenticated, now) ? patience_ns : handshake_ns;
  }
  // When accepting resumes; of interest while in the future.
  std::uint64_t resumes_at_ns() const { return paused_until_ns_; }

 private:
  static constexpr std::uint64_t pause_ns = 100'000'000;
  std::uint64_t paused_until_ns_ = 0;
};

}  // namespace pith
