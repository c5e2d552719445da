// The sum of values coded in blocks, in rank order and coded once more: the reduction of every
// scheme that sends all elements with fewer bits.
#pragma once

#include "collectives/lists/parcels.hpp"

namespace pith {

// A parcel's coded values lie one piece behind another; each piece begins a block of its own, so
// that no scale is shared by two tensors.
std::size_t coded_bytes(Pieces pieces, const Coding& coding);

struct CodedSum {
  const SparseCall* args = nullptr;
  Coding coding;
  Pieces pieces;                // at the parcel's first piece
  std::byte* values = nullptr;  // in: this rank's; out: the sums, the same bits on every rank
  std::uint32_t step = 0;       // names the parcel's messages
  Fence ready;                  // reached when this rank's values are written
};

// Where coding keeps a rest, a rank adds its own values of its blocks as they are, and their
// changes (Compressor::changes) leave it what coding loses of the sums.
//
// Every rank sums some of the blocks of all ranks' values and sends the results to all others.
// Cost: 2 alpha + 2 (P-1)/P m beta, m bytes of coded values; all messages of a half are in flight
// at once.
Task<Error> sum_coded_values(Call& call, CodedSum sum);

// How a rank codes a piece: its values (`sums` false), or the sums of all ranks.
CodingInput coding_input(const Call& call, const SparseCall& args, const Piece& piece, bool sums);

}  // namespace pith
