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

// The lists of one parcel, of which `pieces` is at the first piece: of every piece's tensor the
// last run of what was taken. Where that is its only run, it replaces those that were sent before.
ListMessage write_lists(Call& call, const SparseCall& args, Pieces pieces, std::uint32_t flags);

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

// A parcel's lists from a peer: a new run of received[origin] of every piece's tensor, or its only
// one where the sender says so. At most `most` pairs are accepted.
Task<Error> receive_lists(Call& call, const SparseCall& args, Pieces pieces, ListAddress from,
                          std::size_t origin, std::size_t most, ListHead& head);

}  // namespace pith
