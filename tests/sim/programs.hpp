// Small collectives written for these tests, so that the simulator is tested without the library's
// algorithms: what they compute and what they cost can be said in one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/call.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

inline Bytes bytes_of(std::vector<std::uint64_t>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(std::uint64_t)};
}

inline Bytes bytes_of(std::vector<std::byte>& values) { return {values.data(), values.size()}; }

inline Fence add_into(Call& call, Bytes into, const std::byte* values) {
  return call.run<ReduceKernel>(
      {into.data, into.data, values, into.size / sizeof(std::uint64_t), DType::u64, Op::sum});
}

// Ring reduce-scatter and allgather over equal blocks; data.size is a multiple of 8 * ranks.
inline Task<Error> ring(Call& call, Bytes data) {
  const int p = call.size();
  const std::size_t block = data.size / static_cast<std::size_t>(p);
  const int next = (call.rank() + 1) % p;
  const int previous = (call.rank() + p - 1) % p;
  std::uint32_t step = 0;
  Fence ready;
  for (int s = 0; s < p - 1; ++s, ++step) {
    const auto out = static_cast<std::size_t>((call.rank() + p - s) % p);
    const auto in = static_cast<std::size_t>((call.rank() + 2 * p - s - 1) % p);
    Expected<Borrowed> partial = co_await call.exchange_borrow(
        next, previous, 0, step, data.part(out * block, block), block, ready);
    if (!partial) co_return partial.error();
    ready = add_into(call, data.part(in * block, block), partial->data);
    call.give_back(*partial, ready);
  }
  for (int s = 0; s < p - 1; ++s, ++step) {
    const auto out = static_cast<std::size_t>((call.rank() + 1 + p - s) % p);
    const auto in = static_cast<std::size_t>((call.rank() + p - s) % p);
    Error error = co_await call.exchange(next, previous, 0, step, data.part(out * block, block),
                                         data.part(in * block, block), ready);
    if (error) co_return error;
  }
  co_await call.until(ready);
  co_return Error();
}

// Recursive doubling; the number of ranks is a power of two.
inline Task<Error> doubling(Call& call, Bytes data) {
  Fence ready;
  std::uint32_t step = 0;
  for (int distance = 1; distance < call.size(); distance *= 2, ++step) {
    const int peer = call.rank() ^ distance;
    Expected<Borrowed> theirs =
        co_await call.exchange_borrow(peer, peer, 0, step, data, data.size, ready);
    if (!theirs) co_return theirs.error();
    ready = add_into(call, data, theirs->data);
    call.give_back(*theirs, ready);
  }
  co_await call.until(ready);
  co_return Error();
}

// An allreduce of these with its memory, for runs with aborts and for checks of the result.
class Allreduce final : public Program {
 public:
  using Algorithm = Task<Error> (*)(Call& call, Bytes data);

  Allreduce(Algorithm algorithm, int ranks, std::size_t count)
      : algorithm_(algorithm), values_(static_cast<std::size_t>(ranks)), expected_(count) {
    for (std::size_t rank = 0; rank < values_.size(); ++rank) {
      for (std::size_t i = 0; i < count; ++i) {
        values_[rank].push_back((rank * count + i + 1) * 0x9E3779B97F4A7C15U);
        expected_[i] += values_[rank].back();
      }
    }
  }
  Task<Error> start(Call& call, int rank) override { return checked(call, *this, of(rank)); }
  std::span<std::byte> memory(int rank) override {
    const Bytes bytes = bytes_of(of(rank));
    return {bytes.data, bytes.size};
  }

 private:
  std::vector<std::uint64_t>& of(int rank) { return values_[static_cast<std::size_t>(rank)]; }

  static Task<Error> checked(Call& call, Allreduce& self, std::vector<std::uint64_t>& values) {
    Error error = co_await self.algorithm_(call, bytes_of(values));
    if (!error && values != self.expected_) error = Error(Code::internal, "wrong sum\n");
    co_return error;
  }

  Algorithm algorithm_;
  std::vector<std::vector<std::uint64_t>> values_;
  std::vector<std::uint64_t> expected_;
};

}  // namespace pith::test
