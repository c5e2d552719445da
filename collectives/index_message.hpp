// Messages that carry indices only: of every piece of a parcel the coded list.
#pragma once

#include "collectives/parcels.hpp"

namespace pith {

struct IndexMessage {
  IndexMessage() = default;
  IndexMessage(Call& call, std::size_t room) : memory(call.host_compute(), room) {}

  Scratch memory;
  std::size_t size = 0;

  Bytes bytes() const { return memory.bytes().part(0, size); }
};

// Bytes that no message for a parcel exceeds whose lists have at most `most` indices in all.
std::size_t most_index_bytes(Pieces parcel, std::size_t most);

// Lists are put, and got, in the order of the pieces. `replaces`: the list is all of its tensor's,
// whatever came of that before.
class IndexWriter {
 public:
  IndexWriter(Call& call, Pieces parcel, std::size_t most)
      : call_(call), message_(call, most_index_bytes(parcel, most)) {}

  void put(Range range, const SparseList& list, bool replaces);
  IndexMessage finish() { return std::move(message_); }

 private:
  Call& call_;
  IndexMessage message_;
};

class IndexReader {
 public:
  IndexReader(Call& call, const IndexMessage& message)
      : call_(call), left_{message.bytes().data, message.size} {}

  // Whether the next list replaces others. False, too, where there is no list.
  bool replaces() const;
  // The next list. What cannot be read, or has more indices than there is room, is not valid.
  Decoded get(Range range, std::uint32_t* indices, std::size_t room);
  bool done() const { return left_.size == 0; }

 private:
  Call& call_;
  ConstBytes left_;
};

}  // namespace pith
