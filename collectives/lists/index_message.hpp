// Coded lists of indices, one after another in a message: the format of all messages of compressed
// calls that carry indices.
#pragma once

#include <cstring>

#include "collectives/lists/parcels.hpp"

namespace pith {

// Upper bound of a list's bytes, with at most `most` indices in a range of `span` elements.
constexpr std::size_t index_bytes(std::size_t most, std::size_t span) {
  return 1 + EncodeIndicesKernel::coded_bound(std::min(most, span), span);
}

// Lists are read in the order in which they were written. `replaces`: the list replaces all earlier
// lists of its tensor.
class IndexWriter {
 public:
  // `out` must have room for all lists.
  IndexWriter(Call& call, std::byte* out) : call_(call), begin_(out), end_(out) {}

  void put(Range range, const SparseList& list, bool replaces);
  template <class T>
  void put_value(const T& value) {
    std::memcpy(end_, &value, sizeof value);
    end_ += sizeof value;
  }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  // Reached when everything has been written.
  Fence ready() const { return ready_; }

 private:
  Call& call_;
  std::byte* begin_;
  std::byte* end_;
  Fence ready_;
};

// Reads any bytes safely: what is malformed is reported as not valid.
class IndexReader {
 public:
  IndexReader(Call& call, ConstBytes bytes) : call_(call), left_(bytes) {}

  // Whether the next list replaces earlier ones; false if there is no next list.
  bool replaces() const;
  // Decodes the next list. A list with more than `room` indices is not valid either.
  Decoded get(Range range, std::uint32_t* indices, std::size_t room);
  // False: too few bytes are left.
  template <class T>
  bool get_value(T& value) {
    if (left_.size < sizeof value) return false;
    std::memcpy(&value, left_.data, sizeof value);
    skip(sizeof value);
    return true;
  }
  // Upper bound of the indices in the rest of the message, each of which takes at least a bit. A
  // receiver must not allocate for more, whatever number the message claims.
  std::size_t most() const { return 8 * left_.size; }
  bool done() const { return left_.size == 0; }

 private:
  void skip(std::size_t bytes) { left_ = {left_.data + bytes, left_.size - bytes}; }

  Call& call_;
  ConstBytes left_;
};

// A message for the pieces of a parcel that has lists only, without a head.
struct IndexMessage {
  IndexMessage() = default;
  IndexMessage(Call& call, std::size_t room) : memory(call.host_compute(), room) {}

  Scratch memory;
  std::size_t size = 0;
  Fence ready;

  Bytes bytes() const { return memory.bytes().part(0, size); }
};

// Upper bound of the bytes of a message for a parcel whose lists have at most `most` indices in
// all.
std::size_t most_index_bytes(Pieces parcel, std::size_t most);

}  // namespace pith
