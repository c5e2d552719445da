#include "collectives/dense/direct.hpp"

namespace pith {

Task<Error> send_to_all(Call& call, const CollectiveArgs& args) {
  for (int d = 1; d < call.size(); ++d) {
    const int to = wrap(call.rank() + d, call.size());
    const Bytes data = sent_to(call, args, to);
    if (data.size == 0) continue;
    Error error = co_await call.send(to, 0, 0, data);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> reduce_from_all(Call& call, const CollectiveArgs& args, Bytes mine, Bytes out) {
  if (mine.size == 0) co_return Error();
  const auto p = static_cast<std::size_t>(call.size());
  Leases leases;
  std::array<const std::byte*, most_view_ranks> inputs;
  for (std::size_t i = 0; i < p; ++i) {
    const int r = static_cast<int>(i);
    inputs[i] = mine.data;
    if (r == call.rank()) continue;
    Expected<Borrowed> theirs = co_await call.borrow(r, 0, 0, mine.size);
    if (!theirs) co_return theirs.error();
    inputs[i] = leases.add(std::move(*theirs));
  }
  const Fence reduced = reduce_all_ranks(call, args, out, std::span(inputs).first(p));
  leases.give_back(call, reduced);
  co_await call.until(reduced);
  co_return Error();
}

}  // namespace pith
