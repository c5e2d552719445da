#include "tests/collectives/dense_program.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "core/heap.hpp"
#include "tests/collectives/reference.hpp"

namespace pith::test {

namespace {

constexpr std::byte beside{0xC3};
constexpr std::size_t margin = 64;  // bytes beside each buffer, which nobody may touch

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::string describe(const DenseCase& c) {
  return fmt::format(
      "{} {}: {} ranks, {} x {}, {}, root {}, {}, shift {}, chunks of {} bytes, {} lanes, seed {}",
      name_of(c.algorithm->collective), c.algorithm->name, c.ranks, c.count, name_of(c.type),
      name_of(c.op), c.root, c.in_place ? "in place" : "out of place", c.shift,
      c.tuning.chunk_bytes, c.tuning.lanes, c.seed);
}

void FreeBuffer::operator()(std::byte* memory) const {
  if (registered) {
    static_cast<void>(Heap::process().free(memory));
  } else {
    ::operator delete (memory, std::align_val_t{64});
  }
}

DenseProgram::DenseProgram(const DenseCase& dense, const std::function<bool(int)>& registered)
    : case_(dense) {
  for (int rank = 0; rank < case_.ranks; ++rank) {
    lay_out(rank, registered && registered(rank));
    const CollectiveArgs own = args(rank);
    if (own.send.size == 0 || !own.send.data) continue;
    std::ranges::copy(input(rank), own.send.data);
  }
}

// margin, send, margin, recv, margin; both buffers `shift` bytes behind an aligned address. In
// place there is only recv.
void DenseProgram::lay_out(int rank, bool registered) {
  Buffer& buffer = buffers_.emplace_back();
  buffer.recv = margin + case_.shift;
  if (!case_.in_place) buffer.recv += round_up(send_bytes() + case_.shift) + margin;
  buffer.send = margin + case_.shift;
  if (case_.in_place && case_.algorithm->collective == Collective::allgather) {
    buffer.send += static_cast<std::size_t>(rank) * send_bytes();
  }
  buffer.size = buffer.recv + recv_bytes() + margin;
  void* memory = registered ? Heap::process().allocate(buffer.size)
                            : ::operator new (buffer.size, std::align_val_t{64});
  if (!memory) throw std::bad_alloc();
  buffer.memory = {static_cast<std::byte*>(memory), FreeBuffer{registered}};
  std::fill_n(buffer.memory.get(), buffer.size, beside);
}

std::size_t DenseProgram::recv_bytes() const {
  const bool gathers = case_.algorithm->collective == Collective::allgather;
  return gathers ? send_bytes() * static_cast<std::size_t>(case_.ranks) : send_bytes();
}

CollectiveArgs DenseProgram::args(int rank) {
  const Buffer& buffer = buffers_[static_cast<std::size_t>(rank)];
  CollectiveArgs args;
  args.collective = case_.algorithm->collective;
  args.send = {buffer.memory.get() + buffer.send, send_bytes()};
  args.recv = {buffer.memory.get() + buffer.recv, recv_bytes()};
  const bool no_input = args.collective == Collective::broadcast && rank != case_.root;
  if (no_input && !case_.in_place) args.send = {};
  args.count = case_.count;
  args.type = case_.type;
  args.op = case_.op;
  args.root = case_.root;
  args.tuning = case_.tuning;
  return args;
}

// What is moved is random bits; what is added are integers of any value, or floats whose sums and
// products over all ranks stay within the range of the narrowest type.
std::vector<std::byte> DenseProgram::input(int rank) const {
  std::vector<std::byte> bytes(send_bytes());
  const bool floats = is_float(case_.type) && case_.algorithm->collective == Collective::allreduce;
  for (std::size_t i = 0; i < case_.count; ++i) {
    const std::uint64_t bits = random_bits(case_.seed, static_cast<std::uint64_t>(rank), i);
    std::byte* to = bytes.data() + i * element();
    if (!floats) {
      std::memcpy(to, &bits, element());
      continue;
    }
    const double uniform = static_cast<double>(bits >> 11) * 0x1p-53;
    store_float(case_.type, to, case_.op == Op::prod ? 0.875 + 0.375 * uniform : 4 * uniform - 2);
  }
  return bytes;
}

const std::byte* DenseProgram::recv(int rank) const {
  const Buffer& buffer = buffers_[static_cast<std::size_t>(rank)];
  return buffer.memory.get() + buffer.recv;
}

std::string DenseProgram::check_around(int rank) const {
  const Buffer& buffer = buffers_[static_cast<std::size_t>(rank)];
  const bool has_send = !case_.in_place && (case_.algorithm->collective != Collective::broadcast ||
                                            rank == case_.root);
  for (std::size_t i = 0; i < buffer.size; ++i) {
    if (i >= buffer.recv && i < buffer.recv + recv_bytes()) continue;
    if (has_send && i >= buffer.send && i < buffer.send + send_bytes()) continue;
    if (buffer.memory.get()[i] != beside) {
      return fmt::format("rank {}: byte {} beside the buffers was written", rank, i);
    }
  }
  if (has_send && !std::ranges::equal(input(rank),
                                      std::span(buffer.memory.get() + buffer.send, send_bytes()))) {
    return fmt::format("rank {}: the input was written", rank);
  }
  return {};
}

std::string DenseProgram::check_equal(int rank, std::span<const std::byte> expected) const {
  const auto [got, want] = std::mismatch(expected.begin(), expected.end(), recv(rank));
  if (got == expected.end()) return {};
  const auto offset = static_cast<std::size_t>(got - expected.begin());
  return fmt::format("rank {}: element {} is wrong", rank, offset / element());
}

// Every operation rounds once, and so does the division: N + 1 roundings of at most the sum of the
// magnitudes. Factors are near 1, where the product itself is that bound.
std::string DenseProgram::check_floats(const std::vector<std::vector<std::byte>>& inputs) const {
  const Precision precision = precision_of(case_.type);
  const bool exact = case_.op == Op::max || case_.op == Op::min;
  for (std::size_t i = 0; i < case_.count; ++i) {
    long double expected = 0;
    long double size = 0;
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      const long double x = load_float(case_.type, inputs[r].data() + i * element());
      expected = r == 0 ? x : combine_floats(case_.op, expected, x);
      size = case_.op == Op::prod ? expected * 1.5L : size + std::fabs(x);
    }
    if (case_.op == Op::avg) expected /= case_.ranks;
    if (case_.op == Op::avg) size /= case_.ranks;
    const long double allowed =
        exact ? 0 : (case_.ranks + 1) * (precision.unit * size + precision.least);
    const double got = load_float(case_.type, recv(0) + i * element());
    if (!(std::fabs(got - expected) <= allowed)) {
      return fmt::format("element {} is {}, not {} +- {}", i, got, static_cast<double>(expected),
                         static_cast<double>(allowed));
    }
  }
  return {};
}

std::string DenseProgram::check_reduced(const std::vector<std::vector<std::byte>>& inputs) const {
  if (is_float(case_.type)) {
    std::string failure = check_floats(inputs);
    for (int rank = 1; rank < case_.ranks && failure.empty(); ++rank) {
      failure = check_equal(rank, {recv(0), recv_bytes()});
    }
    return failure;
  }
  std::vector<std::byte> expected(send_bytes());
  for (std::size_t i = 0; i < case_.count; ++i) {
    std::uint64_t value = load_integer(case_.type, inputs[0].data() + i * element());
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      value = combine_integers(case_.type, case_.op, value,
                               load_integer(case_.type, inputs[r].data() + i * element()));
    }
    if (case_.op == Op::avg) value = divide_integer(case_.type, value, case_.ranks);
    std::memcpy(expected.data() + i * element(), &value, element());
  }
  std::string failure;
  for (int rank = 0; rank < case_.ranks && failure.empty(); ++rank) {
    failure = check_equal(rank, expected);
  }
  return failure;
}

std::string DenseProgram::check() const {
  std::string failure;
  std::vector<std::vector<std::byte>> inputs;
  for (int rank = 0; rank < case_.ranks && failure.empty(); ++rank) {
    inputs.push_back(input(rank));
    failure = check_around(rank);
  }
  if (!failure.empty()) return failure;
  const Collective collective = case_.algorithm->collective;
  if (collective == Collective::allreduce) return check_reduced(inputs);
  if (collective == Collective::barrier) return {};
  std::vector<std::byte> expected = inputs[static_cast<std::size_t>(case_.root)];
  if (collective == Collective::allgather) {
    expected.clear();
    for (const auto& one : inputs) expected.insert(expected.end(), one.begin(), one.end());
  }
  for (int rank = 0; rank < case_.ranks && failure.empty(); ++rank) {
    failure = check_equal(rank, expected);
  }
  return failure;
}

std::string run_case(const DenseCase& c, SimConfig config) {
  config.ranks = c.ranks;
  World world(std::move(config));
  DenseProgram program(c);
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  std::string failure;
  for (const Error& error : run_ranks(world, task)) {
    if (error && failure.empty()) failure = error.message();
  }
  if (failure.empty()) failure = program.check();
  if (failure.empty()) failure = world.leaks();
  return failure.empty() ? failure : describe(c) + "\n  " + failure;
}

}  // namespace pith::test
