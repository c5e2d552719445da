// What a coded call sends, and its cost by the algorithm that carries its parcels.
#pragma once

#include <cstddef>

#include "collectives/coded/coded_parcels.hpp"

namespace pith {

// The carrier's algorithm is chosen by a parcel's coded block; `block` is that of the first parcel,
// the others are no longer.
struct CodedMoveShape {
  // Precondition: there are elements.
  CodedMoveShape(const CollectiveArgs& args, const Coding& coding, int ranks)
      : CodedMoveShape(args, coding, CodedParcels(args, coding, ranks)) {}

  // What a rank sends, in the mean over the ranks, of blocks of so many bytes.
  static double sent_bytes(Collective carrier, int ranks, std::size_t block) {
    const double others = ranks - 1;
    const double each = carrier == Collective::broadcast ? others / ranks : others;
    return each * static_cast<double>(block);
  }

  // Seconds, without coding: those of one call with all coded bytes, and the latency of each round
  // of parcels after the first, since strands hide only each other's. `cost`: of the carrier's
  // algorithm, for a link and the bytes of a block.
  template <class Cost>
  double seconds(const LinkCost& link, const Cost& cost) const {
    LinkCost without_latency = link;
    without_latency.alpha = 0;
    without_latency.message = 0;
    const double latency = cost(link, block) - cost(without_latency, block);
    const auto rounds = static_cast<double>(chunks_in(parcels, strands));
    return cost(link, all) + (rounds - 1) * latency;
  }

  Collective carrier;
  std::size_t block;  // bytes
  std::size_t parcels;
  std::size_t strands;
  std::size_t all;  // bytes of the whole block

 private:
  CodedMoveShape(const CollectiveArgs& args, const Coding& coding, const CodedParcels& cut)
      : carrier(carrier_of(args.collective)),
        block(coding.bytes(cut.columns(0).size)),
        parcels(cut.size()),
        strands(cut.strands()),
        all(coding.bytes(args.count)) {}
};

}  // namespace pith
