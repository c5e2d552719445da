// Dissemination barrier: in round i rank r tells rank r + 2^i that r, and all ranks that r has
// heard of, have arrived. Cost: ceil(log2 P) alpha. [Hensgen, Finkel, Manber 1988]
#include "collectives/typed_span.hpp"

namespace pith {

Task<Error> barrier_dissemination(Call& call, CollectiveArgs) {
  const int p = call.size();
  for (int distance = 1; distance < p; distance <<= 1) {
    Error error =
        co_await call.exchange(wrap(call.rank() + distance, p), wrap(call.rank() - distance, p), 0,
                               static_cast<std::uint32_t>(distance), {}, {});
    if (error) co_return error;
  }
  co_return Error();
}

double barrier_dissemination_cost(const Shape& shape, const LinkCost& link) {
  return ceil_log2(shape.ranks) * link.alpha;
}

}  // namespace pith
