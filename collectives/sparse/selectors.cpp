#include "collectives/sparse/selectors.hpp"

namespace pith {

Task<Error> select_range(Call& call, TopkSelector& selector, Range range, std::size_t at_once) {
  for (Range left = range; left.size > 0;) {
    const Range part = take_front(left, at_once);
    Error error = co_await selector.looking(part.begin, part.size);
    if (error) co_return error;
    co_await call.until(selector.looked());
    if (left.size > 0) co_await call.turn();
  }
  co_return co_await selector.ending_run();
}

Task<Error> finish_selecting(Call& call, TopkSelector& selector, std::size_t at_once) {
  const std::size_t again = selector.starts_anew() ? selector.elements() : 0;
  for (Range left{0, again}; left.size > 0;) {
    const Range part = take_front(left, at_once);
    Error error = co_await selector.looking_again(part.begin, part.size);
    if (error) co_return error;
    co_await call.until(selector.looked());
    co_await call.turn();
  }
  co_return co_await selector.finishing();
}

Task<Error> finish_pieces(Call& call, Selectors& selectors, Pieces pieces) {
  for (bool more = !pieces.done(); more;) {
    const Piece piece = pieces.next();
    more = !piece.ends_parcel;
    if (piece.number != 0) continue;
    Error error = co_await finish_selecting(call, selectors[piece.tensor], selectors.at_once());
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace pith
