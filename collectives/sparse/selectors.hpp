// One selector per tensor of a compressed call.
#pragma once

#include <algorithm>
#include <new>

#include "collectives/lists/parcels.hpp"
#include "compress/topk_selector.hpp"

namespace pith {

// In scratch memory. `streams`: certain elements are taken before the end.
class Selectors {
 public:
  Selectors(Call& call, const SparseCall& args, bool streams)
      : Selectors(call, args.tensors.size()) {
    const VectorQueue queue = args.queue(call);
    at_once_ = elements_at_once(args);
    for (const CompressedTensor& tensor : args.tensors) {
      const std::size_t k = elected_of(tensor.compressor->spec().density, tensor.count);
      // What is on its way from one array to another would be lost if there were no room.
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
  // Elements between two turns.
  std::size_t at_once() const { return at_once_; }

 private:
  // Where there is no memory for all of them, those that are there are taken apart.
  Selectors(Call& call, std::size_t most)
      : memory_(call.host_compute(), most * sizeof(TopkSelector)) {}
  TopkSelector* begin() const { return reinterpret_cast<TopkSelector*>(memory_.bytes().data); }

  Scratch memory_;
  std::size_t size_ = 0;
  std::size_t at_once_ = 0;
};

// One range, with a turn between its parts of so many elements; its certain elements are one run.
Task<Error> select_range(Call& call, TopkSelector& selector, Range range, std::size_t at_once);
// After all ranges: the rest, likewise in parts where all is looked at again.
Task<Error> finish_selecting(Call& call, TopkSelector& selector, std::size_t at_once);

// Adds the gradient of one piece after another, up to the end of their parcel, and selects from it;
// each(piece) after each.
template <class Each>
Task<Error> select_pieces(Call& call, Selectors& selectors, Pieces pieces, Each each) {
  for (bool more = !pieces.done(); more;) {
    const Piece piece = pieces.next();
    Task<Error> passing =
        select_range(call, selectors[piece.tensor], piece.range, selectors.at_once());
    Error error = co_await std::move(passing);
    if (error) co_return error;
    each(piece);
    more = !piece.ends_parcel;
  }
  co_return Error();
}

// After all passes: of those tensors whose first piece is among these.
Task<Error> finish_pieces(Call& call, Selectors& selectors, Pieces pieces);

}  // namespace pith
