// Messages that carry lists of pairs: the coded indices of all pieces of a parcel, and then the
// values in a message of their own, for only the first one tells how many there are.
#pragma once

#include "collectives/parcels.hpp"

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
  Scratch head;
  Scratch values;
  std::size_t head_bytes = 0;
  std::size_t values_bytes = 0;
};

// What one message holds the lists of: a parcel, of which `pieces` is at the first piece, or in the
// end the rest of every tensor, which is then a piece as a whole.
struct Parcel {
  Pieces pieces;
  bool is_tail = false;
};

// Of every piece's tensor the last run of what was taken. Where a tail is its tensor's only run, it
// replaces those that were sent before.
ListMessage write_lists(Call& call, const SparseCall& args, Parcel parcel, std::uint32_t flags);

// One list whose indices lie in a range.
ListMessage write_list(Call& call, const SparseList& list, Range range, DType type,
                       std::uint32_t flags);
// The same from a peer: a new run of `into`, whose type is that of the values. Flags are added to
// those that are there.
Task<Error> receive_list(Call& call, ListAddress from, Range range, PairList& into,
                         std::uint32_t& flags, Traffic& traffic);

Task<Error> send_lists(Call& call, ListAddress to, const ListMessage& message);
// To every other rank at once; `lane` and `step` as for one.
Task<Error> send_lists_to_all(Call& call, ListAddress name, const ListMessage& message);

// A parcel's lists from a peer, as they came: ready to be sent on. At most `most` pairs are
// accepted.
Task<Error> fetch_lists(Call& call, const SparseCall& args, Parcel parcel, ListAddress from,
                        std::size_t most, ListMessage& message);
// Of every piece's tensor the run of received[origin] with the piece's number, whatever the order
// in which parcels come; tails come last. `from` has sent it and is to blame.
Error read_lists(Call& call, const SparseCall& args, Parcel parcel, const ListMessage& message,
                 int origin, int from, ListHead& head);

}  // namespace pith
