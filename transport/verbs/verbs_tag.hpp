// What a work request carries to its completion: for whom it was posted, and for what.
#pragma once

#include <cstdint>

namespace pith {

enum class VerbsWork : std::uint8_t { none, frame_sent, frame_came, data_sent, data_came };

struct VerbsTag {
  VerbsWork work = VerbsWork::frame_sent;
  std::uint32_t peer = 0;  // below 2^28
  std::uint32_t value =
      0;  // of a frame sent: its number; of one that came: its slot; of data: which

  std::uint64_t pack() const {
    return static_cast<std::uint64_t>(work) << 60 | static_cast<std::uint64_t>(peer) << 32 | value;
  }
  static VerbsTag unpack(std::uint64_t id) {
    return {static_cast<VerbsWork>(id >> 60), static_cast<std::uint32_t>(id >> 32) & 0xfffffff,
            static_cast<std::uint32_t>(id)};
  }
};

// The value of data: the connection, and the epoch in which it was posted.
struct VerbsDataValue {
  std::uint32_t lane = 0;  // below 16
  std::uint32_t epoch = 0;

  static constexpr std::uint32_t epoch_mask = 0xfffffff;
  std::uint32_t pack() const { return lane << 28 | (epoch & epoch_mask); }
  static VerbsDataValue unpack(std::uint32_t value) { return {value >> 28, value & epoch_mask}; }
};

}  // namespace pith
