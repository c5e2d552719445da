// Messages that carry lists of pairs. The first message has the coded indices of all pieces of a
// round. The values follow in a second message, since only the first one tells how many there are.
#pragma once

#include "collectives/lists/list_line.hpp"
#include "collectives/lists/rounds.hpp"

namespace pith {

// The head of the first message.
struct ListHead {
  static constexpr std::uint32_t nonfinite = 1;  // the sender found elements that are not finite

  std::uint32_t count = 0;  // pairs in all lists
  std::uint32_t flags = 0;
};

// The peer, and the name of the first message; the second one uses the next lane.
struct ListAddress {
  int peer = 0;
  std::uint16_t lane = 0;
  std::uint32_t step = 0;
};

// A message to send, or as received. It holds copies: its source may change meanwhile.
struct ListMessage {
  ListHead says;  // the content of ListHead
  Scratch head;
  Scratch values;
  std::size_t head_bytes = 0;
  std::size_t values_bytes = 0;
  Fence ready;  // reached when both are written

  std::uint64_t bytes() const { return head_bytes + values_bytes; }
};

// Writes, for every piece of a round, what the last run of its tensor's taken() has there. A tail
// that is its tensor's only run replaces the lists that were sent before.
ListMessage write_lists(Call& call, const SparseCall& args, const Round& round,
                        std::uint32_t flags);

Task<Error> send_lists(Call& call, ListAddress to, const ListMessage& message);
// To all other ranks at once; name.peer is ignored.
Task<Error> send_lists_to_all(Call& call, ListAddress name, const ListMessage& message);

// Receives a round's lists from a peer without decoding them, so that they can be sent on. More
// than `most` pairs are an error.
Task<Error> fetch_lists(Call& call, const SparseCall& args, const Round& round, ListAddress from,
                        std::size_t most, ListMessage& message);

// The runs of received lists, numbered because rounds may arrive in any order.
constexpr std::size_t run_of_parcel(std::size_t piece) { return 2 * piece; }
constexpr std::size_t run_of_tail(std::size_t piece) { return 2 * piece + 1; }

// Decodes a round's lists: for every piece a run of received[origin]. Errors name `from`, which
// sent the message. Sets replaced[t] if the tail replaces the lists of tensor t's parcels.
Error read_lists(Call& call, const SparseCall& args, const Round& round, const ListMessage& message,
                 int origin, int from, std::byte* replaced);

// A range of a line of vectors, in parts that fit a message each. The messages of all parts have
// one name, since they arrive in order.
struct ListParts {
  Range range;
  std::size_t most = 0;  // elements of a part

  std::size_t count() const { return chunks_in(range.size, most); }
  Range operator[](std::size_t k) const { return chunk_of(range, most, k); }
};

// The pairs of all vectors in a range of their line.
ListMessage write_slices(Call& call, std::span<const ListVector> vectors, Range range, DType type,
                         std::uint32_t flags);

// Sends them to a peer, or to every other rank, in a message for each part.
constexpr int every_other = -1;  // as ListAddress::peer
Task<Error> send_slices(Call& call, ListAddress to, std::span<const ListVector> vectors,
                        ListParts parts, DType type, std::uint32_t flags, Traffic& traffic);

// Where received pairs go: into memory[list] of each vector with elements in the range, whose
// earlier content is dropped.
struct ListTargets {
  std::span<const ListVector> vectors;
  std::size_t list = 0;
  DType type = DType::f32;  // of the values
};
// Receives a peer's slices. Its flags are ORed into `flags`.
Task<Error> receive_slices(Call& call, ListAddress from, ListParts parts, ListTargets targets,
                           std::uint32_t& flags, Traffic& traffic);

}  // namespace pith
