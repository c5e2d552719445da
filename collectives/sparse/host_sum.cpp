#include "collectives/sparse/host_sum.hpp"

#include <array>
#include <optional>

#include "collectives/dense/handle_exchange.hpp"

namespace pith {

namespace {

constexpr std::uint16_t give_lane = 0;
constexpr std::uint16_t flag_lane = 1;

struct Summing {
  HostSum& sum;
  Traffic& traffic;
  std::optional<HandleExchange> handles;  // empty: messages only

  int owners() const { return static_cast<int>(sum.slices.size()); }
  Range slice(int owner) const { return sum.slices[static_cast<std::size_t>(owner)]; }
  Range piece(int owner, std::size_t k) const {
    return chunk_of(slice(owner), sum.chunk_elements, k);
  }
  std::size_t chunks(int owner) const { return chunks_in(slice(owner).size, sum.chunk_elements); }
  bool sees(int owner) const { return handles && (*handles)[owner].sees_send; }
};

Bytes floats(std::byte* vector, Range range) {
  return {vector + range.begin * sizeof(float), range.size * sizeof(float)};
}

// Sends this rank's flag, and the slices that owners cannot read themselves.
Task<Error> give(Call& call, Summing& summing) {
  std::byte flag{summing.sum.flag};
  for (int owner = 0; owner < summing.owners(); ++owner) {
    if (owner == call.rank()) continue;
    Error error = co_await call.send(owner, flag_lane, 0, {&flag, 1});
    if (error) co_return error;
  }
  std::size_t most = 0;
  for (int owner = 0; owner < summing.owners(); ++owner) {
    most = std::max(most, summing.chunks(owner));
  }
  for (std::size_t k = 0; k < most; ++k) {
    for (int d = 1; d < call.size(); ++d) {
      const int owner = wrap(call.rank() + d, call.size());
      if (owner >= summing.owners() || summing.sees(owner) || k >= summing.chunks(owner)) continue;
      const Bytes data = floats(summing.sum.vector, summing.piece(owner, k));
      summing.traffic.sent += data.size;
      Error error = co_await call.send(owner, give_lane, static_cast<std::uint32_t>(k), data);
      if (error) co_return error;
    }
  }
  co_return Error();
}

Fence add(Call& call, std::byte* sum, const std::byte* more, std::size_t count) {
  return call.run<ReduceKernel>({sum, sum, more, count, DType::f32, Op::sum, false});
}

// Adds one rank's input to a chunk of the sum.
Task<Error> add_piece(Call& call, Summing& summing, int from, std::size_t k, std::byte* fetched) {
  const Range range = summing.piece(call.rank(), k);
  const std::size_t offset = range.begin - summing.slice(call.rank()).begin;
  const Bytes out = floats(summing.sum.sum, {offset, range.size});
  std::byte* seen = summing.handles ? (*summing.handles)[from].send : nullptr;
  if (seen) {
    co_await call.until(add(call, out.data, floats(seen, range).data, range.size));
    co_return Error();
  }
  const std::uint64_t far = summing.handles ? (*summing.handles)[from].far_send : 0;
  if (far != 0) {
    Error error = call.copy_from(from, far + range.begin * sizeof(float), {fetched, out.size});
    if (error) co_return error;
    co_await call.until(add(call, out.data, fetched, range.size));
    co_return error;
  }
  Expected<Borrowed> theirs =
      co_await call.borrow(from, give_lane, static_cast<std::uint32_t>(k), out.size);
  if (!theirs) co_return theirs.error();
  Borrowed lent = std::move(*theirs);
  summing.traffic.received += out.size;
  const Fence added = add(call, out.data, lent.data, range.size);
  call.give_back(lent, added);
  co_await call.until(added);
  co_return Error();
}

Task<Error> sum_own(Call& call, Summing& summing) {
  if (summing.handles) {
    Error error = co_await summing.handles->hear();
    if (error) co_return error;
  }
  if (call.rank() >= summing.owners()) co_return Error();
  for (int from = 0; from < call.size(); ++from) {
    if (from == call.rank()) continue;
    std::byte flag{0};
    Error error = co_await call.recv(from, flag_lane, 0, {&flag, 1});
    if (error) co_return error;
    summing.sum.flag |= flag != std::byte{0};
  }
  const Scratch fetched(call.host_compute(), summing.sum.chunk_elements * sizeof(float));
  for (std::size_t k = 0; k < summing.chunks(call.rank()); ++k) {
    for (int from = 0; from < call.size(); ++from) {
      if (from == call.rank()) continue;
      Error error = co_await add_piece(call, summing, from, k, fetched.bytes().data);
      if (error) co_return error;
    }
    co_await call.turn();
  }
  co_return Error();
}

}  // namespace

Task<Error> sum_in_host(Call& host, HostSum& sum, Traffic& traffic) {
  Summing summing{sum, traffic, std::nullopt};
  if (host.views() && host.size() <= most_view_ranks) {
    const Range last = sum.slices.back();
    const MemoryKind kind = sum.hidden ? MemoryKind::cuda : MemoryKind::host;
    const Bytes all{sum.vector, (last.begin + last.size) * sizeof(float), kind};
    summing.handles.emplace(host, all, all, Copies::as_set);
    Error error = co_await summing.handles->tell();
    if (error) co_return error;
  }
  std::array<Task<Error>, 2> strands{give(host, summing), sum_own(host, summing)};
  co_return co_await when_all(strands);
}

}  // namespace pith
