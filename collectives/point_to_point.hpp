// Point-to-point messages. All messages of one call are in flight at once, so that ranks that send
// to each other do not wait for each other's receives. PairWindows limits what is sent before its
// receive is called.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/call.hpp"
#include "collectives/pair_windows.hpp"
#include "core/dtype.hpp"

namespace pith {

struct Message {
  Bytes data;  // what is sent, or where the received bytes go
  std::size_t count = 0;
  DType type = DType::u8;
  int peer = -1;
  bool sends = false;
  std::uint32_t number = 0;  // among the messages of this pair and direction
};

// Refuses messages from a rank to itself that do not match in order, with equal counts and types.
Error check_own(std::span<const Message> messages, int rank);

// At least so many bytes of a message had been sent or received when the message of this step was.
std::size_t bytes_before(std::uint32_t step, std::size_t head_bytes, std::size_t chunk_bytes);

// Sends and receives all messages, cut into chunks of chunk_bytes. `windows`: the communicator's.
Task<Error> exchange_messages(Call& call, std::span<const Message> messages, PairWindows& windows,
                              std::size_t chunk_bytes);

}  // namespace pith
