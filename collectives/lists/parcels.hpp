// How the vectors of a compressed call are cut: into pieces of a vector, and parcels of consecutive
// pieces that travel in one message, so that many small vectors cost one exchange. All ranks cut
// alike. rounds.hpp has the order of the messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "collectives/compressed.hpp"
#include "collectives/patterns.hpp"

namespace pith {

// Elements that the host processes before it yields, so that messages of other strands go on.
inline constexpr std::size_t host_elements_at_once = std::size_t{1} << 18;
// All elements on a device, whose kernels run beside the messages.
inline std::size_t elements_at_once(const SparseCall& args) {
  return args.device ? ~std::size_t{0} : host_elements_at_once;
}

struct Piece {
  std::size_t tensor = 0;
  std::size_t number = 0;  // among the tensor's pieces, from 0 on
  Range range;
  bool ends_parcel = false;
};

// Elements of a parcel: few enough that several parcels overlap, many enough that a message is
// worth its start, and whole blocks of the index code.
inline std::size_t parcel_elements(std::size_t all, double density, std::size_t chunk_bytes) {
  constexpr std::size_t block = EncodeIndicesKernel::block_elements;
  constexpr std::size_t parcels = 16;
  constexpr double bytes_of_pair = 3;
  constexpr std::size_t most = std::size_t{1} << 22;
  const double worth = double(chunk_bytes) / 4 / (bytes_of_pair * density);
  const std::size_t fair = std::max<std::size_t>(all / parcels, 1);
  const std::size_t elements =
      std::max(fair, static_cast<std::size_t>(std::min(worth, double(most))));
  return chunks_in(std::min(elements, most), block) * block;
}

// Elements that one tail covers. A tail carries what is left of a few parcels when all elements
// have been read. There are several, so that the hops of one overlap with those of the next, but
// few enough that a message is worth its start. At any density the bytes of a tail fit 32 bits.
constexpr std::size_t tail_elements(std::size_t all, std::size_t parcel) {
  constexpr std::size_t tails = 4;
  constexpr std::size_t most = std::size_t{1} << 28;
  const std::size_t parcels = chunks_in(chunks_in(all, parcel), tails);
  return std::clamp<std::size_t>(parcels, 1, std::max<std::size_t>(most / parcel, 1)) * parcel;
}

// Iterates over the pieces of all vectors, in order. Vectors without elements have no piece.
class Pieces {
 public:
  Pieces() = default;
  Pieces(std::span<const CompressedTensor> tensors, std::size_t parcel)
      : tensors_(tensors), parcel_(parcel), room_(parcel) {
    skip_empty();
  }
  bool done() const { return tensor_ == tensors_.size(); }
  // Precondition: !done().
  Piece next() {
    const std::size_t count = tensors_[tensor_].count;
    Piece piece{tensor_, number_++, {begin_, std::min(count - begin_, room_)}, false};
    begin_ += piece.range.size;
    room_ -= piece.range.size;
    if (begin_ == count) {
      ++tensor_;
      number_ = 0;
      begin_ = 0;
      skip_empty();
    }
    piece.ends_parcel = room_ == 0 || done();
    if (piece.ends_parcel) room_ = parcel_;
    return piece;
  }

 private:
  void skip_empty() {
    while (!done() && tensors_[tensor_].count == 0) ++tensor_;
  }

  std::span<const CompressedTensor> tensors_;
  std::size_t parcel_ = 0;
  std::size_t room_ = 0;  // left in the parcel that is being filled
  std::size_t tensor_ = 0;
  std::size_t number_ = 0;  // of its next piece
  std::size_t begin_ = 0;
};

// Moves `pieces` past the parcel that it is at.
inline void skip_parcel(Pieces& pieces) {
  while (!pieces.next().ends_parcel) {
  }
}

// Calls each(piece) for the pieces of one parcel. `pieces` is at the first of them.
template <class Each>
void for_each_piece(Pieces pieces, Each each) {
  for (bool more = !pieces.done(); more;) {
    const Piece piece = pieces.next();
    each(piece);
    more = !piece.ends_parcel;
  }
}

}  // namespace pith
