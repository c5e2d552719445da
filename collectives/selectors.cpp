#include "collectives/selectors.hpp"

namespace pith {

Task<Error> select_piece(Call& call, Selectors& selectors, Piece piece) {
  TopkSelector& selector = selectors[piece.tensor];
  for (Range left = piece.range; left.size > 0;) {
    const std::size_t count = std::min(left.size, selectors.at_once());
    Task<Error> looking = selector.looking(left.begin, count);
    Error error = co_await std::move(looking);
    if (error) co_return error;
    left = {left.begin + count, left.size - count};
    if (left.size > 0) co_await call.turn();
  }
  Task<Error> ending = selector.ending_run();
  co_return co_await std::move(ending);
}

Task<Error> finish_pieces(Call&, Selectors& selectors, Pieces pieces) {
  for (bool more = !pieces.done(); more;) {
    const Piece piece = pieces.next();
    more = !piece.ends_parcel;
    if (piece.number != 0) continue;
    Task<Error> finishing = selectors[piece.tensor].finishing();
    Error error = co_await std::move(finishing);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace pith
