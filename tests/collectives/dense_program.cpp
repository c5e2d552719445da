#include "tests/collectives/dense_program.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/premultiply.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/collectives/registered_heap.hpp"
#include "tests/one_case.hpp"

namespace pith::test {

namespace {

constexpr std::byte beside{0xC3};
constexpr std::size_t margin = 64;  // bytes beside each buffer, which nobody may touch

std::ptrdiff_t as_offset(std::size_t bytes) { return static_cast<std::ptrdiff_t>(bytes); }

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Whether random bits are rare ones over many ranks: of "and" and "or" hardly any result would
// depend on random bits of one rank, so there few bits are 0, or 1, or few numbers false, or true.
std::uint64_t rare_bits(int ranks, std::uint64_t bits) {
  std::uint64_t rare = ~std::uint64_t{0};
  for (int k = 0; k < ceil_log2(ranks); ++k) {
    rare &= random_bits(bits, static_cast<std::uint64_t>(k), 0);
  }
  return rare;
}

// An input made of random bits.
std::uint64_t integer_for(Op op, int ranks, std::uint64_t bits) {
  const auto something = [bits] { return bits | std::uint64_t{1} << bits % 8; };
  switch (op) {
    case Op::band:
      return ~rare_bits(ranks, bits);
    case Op::bor:
      return rare_bits(ranks, bits);
    case Op::land:
      return (rare_bits(ranks, bits) & 1) != 0 ? 0 : something();
    case Op::lor:
      return (rare_bits(ranks, bits) & 1) != 0 ? something() : 0;
    case Op::lxor:
      return (bits >> 32 & 1) != 0 ? something() : 0;
    default:
      return bits;
  }
}

// Floats whose sums and products over all ranks stay within the range of the narrowest type.
Number number_for(Op op, std::uint64_t bits) {
  const double uniform = static_cast<double>(bits >> 11) * 0x1p-53;
  const double other = static_cast<double>(bits & 0xffffff) * 0x1p-24;
  if (op == Op::prod) return {0.875 + 0.375 * uniform, other / 2 - 0.25};
  return {4 * uniform - 2, 4 * other - 2};
}

}  // namespace

std::string describe(const DenseCase& c) {
  return fmt::format(
      "{} {}: {} ranks, {} x {}, {}, root {}, {}, shift {}, chunks of {} bytes, {} lanes, seed {}, "
      "order {}{}",
      name_of(c.algorithm->collective), c.algorithm->name, c.ranks, c.count, name_of(c.type),
      c.premultiplied ? "premultiplied sum" : name_of(c.op), c.root,
      c.in_place ? "in place" : "out of place", c.shift, c.tuning.chunk_bytes, c.tuning.lanes,
      c.seed, c.order, describe_hosts(c.hosts));
}

std::string describe_hosts(const std::vector<int>& hosts) {
  return hosts.empty() ? std::string() : fmt::format(", on hosts {}", fmt::join(hosts, " "));
}

void set_places(World& world, const DenseCase& c) {
  if (c.order != 0) world.set_order(random_order(c.ranks, c.order));
  if (!c.hosts.empty()) world.set_hosts(c.hosts);
}

RankOrder random_order(int ranks, std::uint64_t seed) {
  std::vector<int> order;
  for (int rank = 0; rank < ranks; ++rank) order.push_back(rank);
  std::sort(order.begin(), order.end(), [=](int a, int b) {
    return random_bits(seed, static_cast<std::uint64_t>(a), 0) <
           random_bits(seed, static_cast<std::uint64_t>(b), 0);
  });
  return RankOrder(std::move(order));
}

void FreeBuffer::operator()(std::byte* memory) const {
  if (registered) {
    static_cast<void>(registered_heap().free(memory));
  } else {
    ::operator delete (memory, std::align_val_t{64});
  }
}

DenseProgram::DenseProgram(const DenseCase& dense, const std::function<bool(int)>& registered)
    : case_(dense), numbers_(draw_numbers()) {
  for (int rank = 0; rank < case_.ranks; ++rank) {
    lay_out(rank, registered && registered(rank));
    if (!buffer(rank).has_send) continue;
    std::ranges::copy(input(rank), buffer(rank).memory.get() + buffer(rank).send);
  }
}

// margin, send, margin, recv, margin; both buffers `shift` bytes behind an aligned address. In
// place one of them lies in the other.
void DenseProgram::lay_out(int rank, bool registered) {
  const Collective collective = case_.algorithm->collective;
  const bool is_root = rank == case_.root;
  Buffer& buffer = buffers_.emplace_back();
  const bool root_sends = collective == Collective::broadcast || collective == Collective::scatter;
  const bool root_keeps = collective == Collective::reduce || collective == Collective::gather;
  buffer.has_send = !root_sends || is_root;
  buffer.has_recv = (!root_keeps || is_root) && (collective != Collective::exscan || rank > 0);
  const bool both = buffer.has_send && buffer.has_recv;
  buffer.send = buffer.recv = margin + case_.shift;
  if (case_.in_place && both && collective != Collective::alltoall) {
    lay_out_in_place(buffer, rank);
  } else {
    if (both) buffer.recv += round_up(send_bytes() + case_.shift) + margin;
    buffer.size =
        margin + (buffer.has_recv ? buffer.recv + recv_bytes() : buffer.send + send_bytes());
  }
  void* memory = registered ? registered_heap().allocate(buffer.size)
                            : ::operator new (buffer.size, std::align_val_t{64});
  if (!memory) throw std::bad_alloc();
  buffer.memory = {static_cast<std::byte*>(memory), FreeBuffer{registered}};
  std::fill_n(buffer.memory.get(), buffer.size, beside);
}

// Where blocks of all ranks lie on one side, the other side is the own block of them.
void DenseProgram::lay_out_in_place(Buffer& buffer, int rank) const {
  if (extent().recv > extent().send) buffer.send += block_of(rank);
  if (extent().send > extent().recv) buffer.recv += block_of(rank);
  buffer.size = 2 * margin + case_.shift + std::max(send_bytes(), recv_bytes());
}

CollectiveArgs DenseProgram::args(int rank) {
  const Buffer& own = buffer(rank);
  CollectiveArgs args;
  args.collective = case_.algorithm->collective;
  args.send.size = send_bytes();
  args.recv.size = recv_bytes();
  if (own.has_send) args.send.data = own.memory.get() + own.send;
  if (own.has_recv) args.recv.data = own.memory.get() + own.recv;
  // What the C API makes of a broadcast in place.
  if (args.collective == Collective::broadcast && case_.in_place) args.send = args.recv;
  args.count = case_.count;
  args.type = case_.type;
  args.op = case_.op;
  args.root = case_.root;
  args.tuning = case_.tuning;
  if (case_.premultiplied) {
    args.factor.used = true;
    std::ranges::copy(factor(rank), reinterpret_cast<std::byte*>(&args.factor.bits));
  }
  return args;
}

Task<Error> DenseProgram::start(Call& call, int rank) {
  CollectiveArgs placed = args(rank);
  placed.root = call.place_of(placed.root);
  scale_average(placed, case_.ranks);
  if (placed.factor.used) return run_premultiplied(call, placed, *case_.algorithm);
  return case_.algorithm->run(call, placed);
}

// What is moved is random bits. Numbers that are reduced take long to make: they come from a few,
// in whose sequence each rank begins at a place of its own.
std::vector<std::byte> DenseProgram::input(int rank) const {
  std::vector<std::byte> bytes(send_bytes());
  const auto which = static_cast<std::uint64_t>(rank);
  if (reduces(case_.algorithm->collective)) {
    std::size_t from =
        random_bits(case_.seed, which, 0) % (numbers_.size() / element()) * element();
    for (std::size_t at = 0; at < bytes.size(); from = 0) {
      const std::size_t now = std::min(bytes.size() - at, numbers_.size() - from);
      std::copy_n(numbers_.data() + from, now, bytes.data() + at);
      at += now;
    }
    return bytes;
  }
  for (std::size_t at = 0, i = 0; at < bytes.size(); at += element(), ++i) {
    const std::uint64_t bits = random_bits(case_.seed, which, i);
    const ElementBits moved = {bits, ~bits};
    std::memcpy(bytes.data() + at, &moved, element());
  }
  return bytes;
}

std::vector<std::byte> DenseProgram::draw_numbers() const {
  constexpr std::size_t drawn = 1021;  // a prime, so that no block is as long
  if (!reduces(case_.algorithm->collective)) return {};
  std::vector<std::byte> numbers(drawn * element());
  for (std::size_t at = 0; at < numbers.size(); at += element()) {
    const std::uint64_t bits = random_bits(case_.seed, ~std::uint64_t{0}, at);
    if (is_integer(case_.type)) {
      const std::uint64_t integer = integer_for(case_.op, case_.ranks, bits);
      std::memcpy(numbers.data() + at, &integer, element());
    } else {
      store_number(case_.type, numbers.data() + at, number_for(case_.op, bits));
    }
  }
  return numbers;
}

std::vector<std::byte> DenseProgram::factor(int rank) const {
  std::vector<std::byte> bytes(element());
  const auto number = static_cast<std::uint64_t>(rank) + 3;
  if (!is_integer(case_.type)) {
    store_number(case_.type, bytes.data(), {0.25 + 0.125 * static_cast<double>(number % 7), -0.5});
  } else {
    std::memcpy(bytes.data(), &number, element());
  }
  return bytes;
}

std::vector<std::byte> DenseProgram::scaled(std::vector<std::byte> bytes, int rank) const {
  if (!case_.premultiplied) return bytes;
  const std::vector<std::byte> by = factor(rank);
  for (std::size_t i = 0; i < bytes.size(); i += element()) {
    std::byte* at = bytes.data() + i;
    if (!is_integer(case_.type)) {
      store_number(case_.type, at,
                   load_number(case_.type, at) * load_number(case_.type, by.data()));
    } else {
      const std::uint64_t product = combine_integers(
          case_.type, Op::prod, load_integer(case_.type, at), load_integer(case_.type, by.data()));
      std::memcpy(at, &product, element());
    }
  }
  return bytes;
}

std::string DenseProgram::check_around(int rank, std::span<const std::byte> sent) const {
  const Buffer& own = buffer(rank);
  std::vector<std::byte> expected(own.size, beside);
  if (own.has_send) std::ranges::copy(sent, expected.begin() + as_offset(own.send));
  if (own.has_recv) {
    std::copy_n(recv(rank), recv_bytes(), expected.begin() + as_offset(own.recv));
  }
  const auto [was, is] = std::mismatch(expected.begin(), expected.end(), own.memory.get());
  if (was == expected.end()) return {};
  const auto i = static_cast<std::size_t>(was - expected.begin());
  const bool in_send = own.has_send && i - own.send < send_bytes();
  return fmt::format("rank {}: byte {} {} was written", rank, i,
                     in_send ? "of the input" : "beside the buffers");
}

std::string DenseProgram::check_equal(int rank, std::span<const std::byte> expected) const {
  const auto [got, want] = std::mismatch(expected.begin(), expected.end(), recv(rank));
  if (got == expected.end()) return {};
  const auto offset = static_cast<std::size_t>(got - expected.begin());
  return fmt::format("rank {}: element {} is wrong", rank, offset / element());
}

// Every operation rounds once, and so does the division: N + 1 roundings of at most the sum of the
// magnitudes. Factors are near 1, where the product itself is that bound.
std::string DenseProgram::check_floats(const Inputs& inputs, int rank, std::size_t own) const {
  const Precision precision = precision_of(case_.type);
  const bool exact = case_.op == Op::max || case_.op == Op::min;
  for (std::size_t i = 0; i < case_.count; ++i) {
    Number expected = 0;
    long double size = 0;
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      const Number x = load_number(case_.type, inputs[r].data() + own + i * element());
      expected = r == 0 ? x : combine_floats(case_.op, expected, x);
      size = case_.op == Op::prod ? magnitude_of(expected) * 1.5L : size + magnitude_of(x);
    }
    if (case_.op == Op::avg) expected /= static_cast<long double>(case_.ranks);
    if (case_.op == Op::avg) size /= case_.ranks;
    const long double allowed =
        exact ? 0 : (case_.ranks + 1) * (precision.unit * size + precision.least);
    const Number got = load_number(case_.type, recv(rank) + i * element());
    if (!(magnitude_of(got - expected) <= allowed)) {
      return fmt::format("rank {}: element {} is {} + {}i, not {} + {}i +- {}", rank, i, got.real(),
                         got.imag(), expected.real(), expected.imag(), allowed);
    }
  }
  return {};
}

std::vector<std::byte> DenseProgram::reduce_integers(const Inputs& inputs) const {
  std::vector<std::byte> result(send_bytes());
  for (std::size_t at = 0; at < result.size(); at += element()) {
    std::uint64_t value = load_integer(case_.type, inputs[0].data() + at);
    if (is_logical(case_.op)) value = value != 0 ? 1 : 0;  // where it is the only operand
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      value = combine_integers(case_.type, case_.op, value,
                               load_integer(case_.type, inputs[r].data() + at));
    }
    if (case_.op == Op::avg) value = divide_integer(case_.type, value, case_.ranks);
    std::memcpy(result.data() + at, &value, element());
  }
  return result;
}

// `whole`: what integers come to.
std::string DenseProgram::check_reduced(const Inputs& inputs, const std::vector<std::byte>& whole,
                                        int rank) const {
  const bool scattered = case_.algorithm->collective == Collective::reduce_scatter;
  const std::size_t own = scattered ? block_of(rank) : 0;
  if (!is_integer(case_.type)) return check_floats(inputs, rank, own);
  return check_equal(rank, std::span(whole).subspan(own, recv_bytes()));
}

// Over the ranks up to this one, or before it.
std::string DenseProgram::check_scanned(Inputs inputs, int rank) const {
  const bool has_own = case_.algorithm->collective == Collective::scan;
  inputs.resize(static_cast<std::size_t>(rank) + (has_own ? 1 : 0));
  return check_reduced(
      inputs, is_integer(case_.type) ? reduce_integers(inputs) : std::vector<std::byte>(), rank);
}

std::string DenseProgram::check_reduced(Inputs inputs) const {
  for (int rank = 0; rank < case_.ranks; ++rank) {
    auto& one = inputs[static_cast<std::size_t>(rank)];
    one = scaled(std::move(one), rank);
  }
  std::vector<std::byte> whole;
  if (is_integer(case_.type)) whole = reduce_integers(inputs);
  std::string failure;
  for (int rank = 0; rank < case_.ranks && failure.empty(); ++rank) {
    if (!buffer(rank).has_recv) continue;
    if (scans(case_.algorithm->collective)) {
      failure = check_scanned(inputs, rank);
      continue;
    }
    const bool repeated = rank > 0 && case_.algorithm->collective == Collective::allreduce;
    failure = !is_integer(case_.type) && repeated ? check_equal(rank, {recv(0), recv_bytes()})
                                                  : check_reduced(inputs, whole, rank);
  }
  return failure;
}

std::string DenseProgram::check_result(int rank) const {
  const Collective collective = case_.algorithm->collective;
  if (collective == Collective::barrier || !buffer(rank).has_recv) return {};
  Inputs inputs;
  for (int from = 0; from < case_.ranks; ++from) {
    inputs.push_back(reduces(collective) ? scaled(input(from), from) : input(from));
  }
  if (!reduces(collective)) return check_equal(rank, expected(inputs, rank));
  if (scans(collective)) return check_scanned(std::move(inputs), rank);
  return check_reduced(
      inputs, is_integer(case_.type) ? reduce_integers(inputs) : std::vector<std::byte>(), rank);
}

// Of collectives that move.
std::vector<std::byte> DenseProgram::expected(const Inputs& inputs, int rank) const {
  const Collective collective = case_.algorithm->collective;
  const bool of_root = collective == Collective::broadcast || collective == Collective::scatter;
  const int which =
      collective == Collective::scatter || collective == Collective::alltoall ? rank : 0;
  std::vector<std::byte> all;
  for (int from = 0; from < case_.ranks; ++from) {
    if (of_root && from != case_.root) continue;
    const auto one =
        std::span(inputs[static_cast<std::size_t>(from)]).subspan(block_of(which), block_bytes());
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

std::string DenseProgram::check() const {
  const Collective collective = case_.algorithm->collective;
  Inputs inputs;
  std::string failure;
  for (int rank = 0; rank < case_.ranks && failure.empty(); ++rank) {
    inputs.push_back(input(rank));
    failure = check_around(rank, inputs.back());
  }
  if (!failure.empty() || collective == Collective::barrier) return failure;
  if (reduces(collective)) return check_reduced(std::move(inputs));
  for (int rank = 0; rank < case_.ranks && failure.empty(); ++rank) {
    if (buffer(rank).has_recv) failure = check_equal(rank, expected(inputs, rank));
  }
  return failure;
}

namespace {

// Of a call that has ended well: its caller would be told that other ranks make another one.
std::string find_left_over(World& world) {
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::size_t bytes = world.mailbox(rank).flow().backlog();
    if (bytes != 0) return fmt::format("rank {}: {} bytes that nobody receives", rank, bytes);
  }
  return {};
}

}  // namespace

std::string run_in(World& world, const DenseCase& c) {
  DenseProgram program(c);
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  std::string failure;
  for (const Error& error : run_ranks(world, task)) {
    if (error && failure.empty()) failure = error.message();
  }
  if (failure.empty()) failure = program.check();
  if (failure.empty()) failure = find_left_over(world);
  return failure.empty() ? world.leaks() : failure;
}

std::string run_case(const DenseCase& c, SimConfig config, const std::string& tests) {
  const std::string name = describe(c);
  if (!is_wanted(name)) return {};
  config.ranks = c.ranks;
  World world(std::move(config));
  set_places(world, c);
  const std::string failure = run_in(world, c);
  if (failure.empty()) return {};
  print_again(fmt::format("{} '{}'", this_program(), tests), name);
  return name + "\n  " + failure;
}

}  // namespace pith::test
