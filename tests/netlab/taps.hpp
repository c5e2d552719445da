// One network interface in each of several network namespaces, whose other end this process holds.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric.hpp"

namespace netlab {

struct TapOptions {
  std::string interface = "eth0";
  int mtu = 1500;
  // TCP crosses in frames of up to 64 KiB, as to a network card that cuts them up itself: several
  // Gbit/s on one core. Without it every frame is one packet, so that loss means packets.
  bool offload = true;
};

// The interface of port i has the MAC address 02:00:00:00:00:<i + 1>. All functions throw
// std::system_error.
class Taps {
 public:
  // Namespaces as `ip netns` names them.
  Taps(std::span<const std::string> namespaces, const TapOptions& options);
  ~Taps();
  Taps(const Taps&) = delete;
  Taps& operator=(const Taps&) = delete;

  int descriptor(std::size_t port) const { return descriptors_[port]; }
  // Whether the interface believes that its cable is plugged in.
  void set_carrier(std::size_t port, bool on) const;

  // A frame that the namespace sends, with `from` set; nothing where none waits.
  std::optional<Frame> read(std::size_t port);
  // A full interface drops the frame, as cards do.
  void write(const Frame& frame) const;
  // Where the frame is addressed to: one port, or all others (broadcast), or none.
  std::vector<std::size_t> receivers(const Frame& frame) const;

 private:
  std::vector<int> descriptors_;
  std::vector<char> buffer_;
};

}  // namespace netlab
