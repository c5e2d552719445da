// Messages that carry lists of pairs: the coded indices of all pieces of a round, and then the
// values in a message of their own, for only the first one tells how many there are.
#pragma once

#include "collectives/lists/list_line.hpp"
#include "collectives/lists/rounds.hpp"

namespace pith {

// What goes before the coded indices.
struct ListHead {
  static constexpr std::uint32_t nonfinite = 1;  // the sender found elements that are not finite

  std::uint32_t count = 0;  // pairs of all pieces
  std::uint32_t flags = 0;
};

// Who, and the name of the first message; that of the values is the lane behind it.
struct ListAddress {
  int peer = 0;
  std::uint16_t lane = 0;
  std::uint32_t step = 0;
};

// A message on its way; what it was written from may change meanwhile.
struct ListMessage {
  ListHead says;  // what `head` begins with
  Scratch head;
  Scratch values;
  std::size_t head_bytes = 0;
  std::size_t values_bytes = 0;
  Fence ready;  // of what is written here

  std::uint64_t bytes() const { return head_bytes + values_bytes; }
};

// Of every piece of a round what its tensor's last run of taken() has there. Where a tail is its
// tensor's only run, it replaces those that were sent before.
ListMessage write_lists(Call& call, const SparseCall& args, const Round& round,
                        std::uint32_t flags);

Task<Error> send_lists(Call& call, ListAddress to, const ListMessage& message);
// To every other rank at once; `lane` and `step` as for one.
Task<Error> send_lists_to_all(Call& call, ListAddress name, const ListMessage& message);

// A round's lists from a peer, as they came: ready to be sent on. At most `most` pairs are
// accepted.
Task<Error> fetch_lists(Call& call, const SparseCall& args, const Round& round, ListAddress from,
                        std::size_t most, ListMessage& message);

// Where lists of others lie in PairList: rounds may come in any order.
constexpr std::size_t run_of_parcel(std::size_t piece) { return 2 * piece; }
constexpr std::size_t run_of_tail(std::size_t piece) { return 2 * piece + 1; }

// Of every piece of the round a run of received[origin]. `from` has sent it and is to blame.
// replaced[t] is set where tails of tensor t replace what came with its parcels.
Error read_lists(Call& call, const SparseCall& args, const Round& round, const ListMessage& message,
                 int origin, int from, std::byte* replaced);

// A range of a line of vectors, in parts small enough for a message each: they have one name, for
// they arrive in order.
struct ListParts {
  Range range;
  std::size_t most = 0;  // elements of one

  std::size_t count() const { return chunks_in(range.size, most); }
  Range operator[](std::size_t k) const { return chunk_of(range, most, k); }
};

// Of the lists of all vectors what lies in a range of their line.
ListMessage write_slices(Call& call, std::span<const ListVector> vectors, Range range, DType type,
                         std::uint32_t flags);

// Where what comes goes: memory[list] of each vector that has elements there, which begins anew.
struct ListTargets {
  std::span<const ListVector> vectors;
  std::size_t list = 0;
  DType type = DType::f32;  // of the values
};
// The slices of a peer. Flags are added to those that are there.
Task<Error> receive_slices(Call& call, ListAddress from, ListParts parts, ListTargets targets,
                           std::uint32_t& flags, Traffic& traffic);

}  // namespace pith
