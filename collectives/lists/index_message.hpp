// Coded lists of indices behind each other in one message: what every compressed call's messages
// are made of.
#pragma once

#include <cstring>

#include "collectives/lists/parcels.hpp"

namespace pith {

// Bytes that no list exceeds which has at most `most` indices of a range of `span`.
constexpr std::size_t index_bytes(std::size_t most, std::size_t span) {
  return 1 + EncodeIndicesKernel::coded_bound(std::min(most, span), span);
}

// Lists are put, and got, in the same order. `replaces`: the list is all of its tensor's, whatever
// came of that before.
class IndexWriter {
 public:
  // There is room at `out` for the bytes of all lists.
  IndexWriter(Call& call, std::byte* out) : call_(call), begin_(out), end_(out) {}

  void put(Range range, const SparseList& list, bool replaces);
  template <class T>
  void put_value(const T& value) {
    std::memcpy(end_, &value, sizeof value);
    end_ += sizeof value;
  }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  // Behind everything that was put.
  Fence ready() const { return ready_; }

 private:
  Call& call_;
  std::byte* begin_;
  std::byte* end_;
  Fence ready_;
};

// Bytes may be anything: what cannot be read is not valid.
class IndexReader {
 public:
  IndexReader(Call& call, ConstBytes bytes) : call_(call), left_(bytes) {}

  // Whether the next list replaces others. False, too, where there is no list.
  bool replaces() const;
  // The next list. What has more indices than there is room is not valid either.
  Decoded get(Range range, std::uint32_t* indices, std::size_t room);
  // False: there is none.
  template <class T>
  bool get_value(T& value) {
    if (left_.size < sizeof value) return false;
    std::memcpy(&value, left_.data, sizeof value);
    skip(sizeof value);
    return true;
  }
  // Indices that what is left can hold at most: each one takes a bit. Whoever makes room for as
  // many as a message says must not believe more.
  std::size_t most() const { return 8 * left_.size; }
  bool done() const { return left_.size == 0; }

 private:
  void skip(std::size_t bytes) { left_ = {left_.data + bytes, left_.size - bytes}; }

  Call& call_;
  ConstBytes left_;
};

// A message of lists alone, without a head, for the pieces of a parcel.
struct IndexMessage {
  IndexMessage() = default;
  IndexMessage(Call& call, std::size_t room) : memory(call.host_compute(), room) {}

  Scratch memory;
  std::size_t size = 0;
  Fence ready;

  Bytes bytes() const { return memory.bytes().part(0, size); }
};

// Bytes that no message for a parcel exceeds whose lists have at most `most` indices in all.
std::size_t most_index_bytes(Pieces parcel, std::size_t most);

}  // namespace pith
