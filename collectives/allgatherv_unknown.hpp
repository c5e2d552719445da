// Allgather of messages whose lengths only their senders know.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

struct UnknownGather {
  Bytes send;                      // this rank's message; at most `capacity` bytes
  Bytes recv;                      // P slots of `capacity` bytes; rank r's message begins slot r
  std::size_t capacity = 0;        // the same on all ranks
  std::span<std::size_t> lengths;  // out, P of them: how long each message is
  std::size_t chunk_bytes = std::size_t{64} << 10;
};

// Every rank's message to every rank. Host memory or device memory; see allgatherv_unknown.cpp.
Task<Error> allgatherv_unknown(Call& call, UnknownGather args);

// Seconds, where every rank's message has `bytes` bytes.
double allgatherv_unknown_cost(int ranks, std::size_t bytes, std::size_t chunk_bytes,
                               const LinkCost& link);

}  // namespace pith
