// Numbers the messages between two ranks, per pair and direction, in the order of the calls. Both
// ranks agree on them without knowing what else the other one does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/point_to_point.hpp"

namespace pith {

class PairNumbers {
 public:
  explicit PairNumbers(std::size_t ranks) : next_(ranks) {}

  // Numbers of 31 bits that wrap around.
  void take(std::span<Message> messages) {
    for (Message& message : messages) {
      Next& next = next_[static_cast<std::size_t>(message.peer)];
      message.number = (message.sends ? next.send : next.recv)++ & 0x7fffffffu;
    }
  }

 private:
  struct Next {
    std::uint32_t send = 0;
    std::uint32_t recv = 0;
  };
  std::vector<Next> next_;
};

}  // namespace pith
