// One selector per tensor of a compressed call.
#pragma once

#include <algorithm>
#include <new>

#include "collectives/lists/parcels.hpp"
#include "compress/topk_selector.hpp"

namespace pith {

// In scratch memory. `streams`: certain elements are taken before all have been read.
class Selectors {
 public:
  Selectors(Call& call, const SparseCall& args, bool streams)
      : Selectors(call, args.tensors.size()) {
    const VectorQueue queue = args.queue(call);
    at_once_ = elements_at_once(args);
    for (const CompressedTensor& tensor : args.tensors) {
      const std::size_t k = elected_of(tensor.compressor->spec().density, tensor.count);
      // Reserved now: without room, elements in transit between two arrays would be lost.
      tensor.compressor->taken().reserve(k);
      new (begin() + size_) TopkSelector(*tensor.compressor, queue, k, streams);
      ++size_;
    }
  }
  Selectors(const Selectors&) = delete;
  Selectors& operator=(const Selectors&) = delete;
  ~Selectors() {
    for (std::size_t i = 0; i < size_; ++i) begin()[i].~TopkSelector();
  }
  TopkSelector& operator[](std::size_t i) { return begin()[i]; }
  // Elements to process between two yields.
  std::size_t at_once() const { return at_once_; }

 private:
  // Delegated to, so that the destructor runs if the memory of a later selector runs out.
  Selectors(Call& call, std::size_t most)
      : memory_(call.host_compute(), most * sizeof(TopkSelector)) {}
  TopkSelector* begin() const { return reinterpret_cast<TopkSelector*>(memory_.bytes().data); }

  Scratch memory_;
  std::size_t size_ = 0;
  std::size_t at_once_ = 0;
};

// Selects from one range, in parts of `at_once` elements with a yield between them. Its certain
// elements become one run.
Task<Error> select_range(Call& call, TopkSelector& selector, Range range, std::size_t at_once);
// After all ranges: takes the rest. If everything is read again, likewise in parts.
Task<Error> finish_selecting(Call& call, TopkSelector& selector, std::size_t at_once);

// Adds the gradient of one piece after another, up to the end of their parcel, and selects from it.
// Calls each(piece) after each.
template <class Each>
Task<Error> select_pieces(Call& call, Selectors& selectors, Pieces pieces, Each each) {
  for (bool more = !pieces.done(); more;) {
    const Piece piece = pieces.next();
    Error error =
        co_await select_range(call, selectors[piece.tensor], piece.range, selectors.at_once());
    if (error) co_return error;
    each(piece);
    more = !piece.ends_parcel;
  }
  co_return Error();
}

// After all passes: finishes the tensors whose first piece is in this parcel.
Task<Error> finish_pieces(Call& call, Selectors& selectors, Pieces pieces);

}  // namespace pith
