#include "collectives/sparse/factors/gathered_atoms.hpp"

#include <algorithm>
#include <utility>

#include "collectives/patterns.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

constexpr std::uint16_t count_lane = 0x1000;
constexpr std::uint16_t number_lane = 0x1001;
constexpr std::size_t chunks_a_message = 64;

template <class T>
Bytes bytes_of(std::span<T> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size_bytes(), MemoryKind::host};
}

Bytes piece_of(Bytes all, std::size_t number, std::size_t most) {
  const std::size_t begin = std::min(number * most, all.size);
  return all.part(begin, std::min(most, all.size - begin));
}

}  // namespace

GatheredAtoms::GatheredAtoms(const Call& call, std::vector<FactorShape> shapes, AtomList own)
    : shapes_(std::move(shapes)) {
  const auto ranks = static_cast<std::size_t>(call.size());
  counts_.resize(ranks * shapes_.size());
  std::ranges::copy(own.counts, counts_of(call.rank()).begin());
  numbers_.resize(ranks);
  numbers_[static_cast<std::size_t>(call.rank())] = std::move(own.numbers);
  read_.resize(ranks);
}

std::span<std::uint32_t> GatheredAtoms::counts_of(int rank) {
  return std::span(counts_).subspan(static_cast<std::size_t>(rank) * shapes_.size(),
                                    shapes_.size());
}

bool GatheredAtoms::make_room(int rank) {
  const std::span<const std::uint32_t> counts = counts_of(rank);
  std::size_t all = 0;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    if (counts[m] > most_atoms(shapes_[m])) return false;
    all += counts[m] * (shapes_[m].rows + shapes_[m].columns);
  }
  numbers_[static_cast<std::size_t>(rank)].resize(all);
  return true;
}

GatheredAtoms::Factors GatheredAtoms::next() {
  const std::size_t m = next_++;
  const auto [rows, columns, rank] = shapes_[m];
  std::size_t all = 0;
  for (std::size_t r = 0; r < numbers_.size(); ++r) all += counts_[r * shapes_.size() + m];
  left_.resize(rows * all);
  right_.resize(all * columns);
  std::size_t done = 0;
  for (std::size_t r = 0; r < numbers_.size(); ++r) {
    const std::size_t count = counts_[r * shapes_.size() + m];
    const float* from = numbers_[r].data() + read_[r];
    for (std::size_t k = 0; k < count; ++k, from += rows) {
      for (std::size_t i = 0; i < rows; ++i) left_[i * all + done + k] = from[i];
    }
    std::copy_n(from, count * columns, right_.data() + done * columns);
    read_[r] += count * (rows + columns);
    done += count;
  }
  return {{rows, columns, all}, left_.data(), right_.data()};
}

namespace {

Task<Error> trade_counts(Call& call, GatheredAtoms& atoms, Traffic& traffic, int distance) {
  const int to = wrap(call.rank() + distance, call.size());
  const int from = wrap(call.rank() - distance, call.size());
  const Bytes own = bytes_of(atoms.counts_of(call.rank()));
  const Bytes theirs = bytes_of(atoms.counts_of(from));
  traffic.sent += own.size;
  traffic.received += theirs.size;
  Error error = co_await call.exchange(to, from, count_lane, 0, own, theirs);
  if (error) co_return error;
  if (!atoms.make_room(from)) co_return malformed(call, from, "more atoms than a rank draws");
  co_return error;
}

Task<Error> trade_numbers(Call& call, const SparseCall& args, GatheredAtoms& atoms, int distance) {
  const int to = wrap(call.rank() + distance, call.size());
  const int from = wrap(call.rank() - distance, call.size());
  const Bytes own = bytes_of(atoms.numbers_of(call.rank()));
  const Bytes theirs = bytes_of(atoms.numbers_of(from));
  args.traffic->sent += own.size;
  args.traffic->received += theirs.size;
  const std::size_t most =
      std::min<std::size_t>(chunks_a_message * args.chunk_bytes, message_bytes_max);
  const std::size_t steps = chunks_in(std::max(own.size, theirs.size), most);
  for (std::uint32_t step = 0; step < steps; ++step) {
    const Bytes out = piece_of(own, step, most);
    const Bytes in = piece_of(theirs, step, most);
    Error error;
    if (out.size == 0) {
      error = co_await call.recv(from, number_lane, step, in);
    } else if (in.size == 0) {
      error = co_await call.send(to, number_lane, step, out);
    } else {
      error = co_await call.exchange(to, from, number_lane, step, out, in);
    }
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace

Task<Error> gather_atoms(Call& call, const SparseCall& args, GatheredAtoms& atoms) {
  if (call.size() == 1 || atoms.counts_of(0).empty()) co_return Error();
  Task<Error> counting = with_every_other(call, [&call, &args, &atoms](int distance) {
    return trade_counts(call, atoms, *args.traffic, distance);
  });
  Error error = co_await std::move(counting);
  if (error) co_return error;
  Task<Error> trading = with_every_other(call, [&call, &args, &atoms](int distance) {
    return trade_numbers(call, args, atoms, distance);
  });
  error = co_await std::move(trading);
  co_return error;
}

}  // namespace pith
