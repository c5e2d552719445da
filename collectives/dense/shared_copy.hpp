// A copy of a buffer that other ranks do not reach, in memory that those of this host do: it is
// written once and read by all of them, where messages are written once for each. For vectors
// longer than what transports keep on the way, whose messages wait for their receivers.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

class SharedCopy {
 public:
  // Copies `memory` if that saves copies.
  SharedCopy(const Call& call, Bytes memory, const Tuning& tuning);
  ~SharedCopy();
  SharedCopy(const SharedCopy&) = delete;
  SharedCopy& operator=(const SharedCopy&) = delete;

  // The copy, or where there is none the memory itself.
  Bytes bytes() const { return bytes_; }

 private:
  const Call& call_;
  std::byte* copy_ = nullptr;
  Bytes bytes_;
};

}  // namespace pith
