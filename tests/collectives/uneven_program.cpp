#include "tests/collectives/uneven_program.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "collectives/premultiply.hpp"
#include "collectives/typed_span.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/collectives/reference.hpp"
#include "tests/one_case.hpp"

namespace pith::test {

namespace {

constexpr std::size_t margin = 40;  // bytes beside each buffer, which nobody may touch

std::uint64_t draw(std::uint64_t seed, int key) {
  return random_bits(seed, static_cast<std::uint64_t>(key), 7);
}

}  // namespace

std::string describe(const UnevenCase& c) {
  constexpr std::string_view sizes[] = {"equal", "random", "chunks", "of one", "but of one"};
  return fmt::format(
      "{} {}: {} ranks, sizes {} up to {} x {}, {}, {}, chunks of {} bytes, {} lanes, seed {}, "
      "order {}{}",
      name_of(c.algorithm->collective), c.algorithm->name, c.ranks,
      sizes[static_cast<std::size_t>(c.sizes)], c.largest, name_of(c.type),
      c.premultiplied ? "premultiplied sum" : name_of(c.op),
      c.in_place ? "in place" : "out of place", c.tuning.chunk_bytes, c.tuning.lanes, c.seed,
      c.order, describe_hosts(c.hosts));
}

UnevenProgram::UnevenProgram(const UnevenCase& uneven)
    : case_(uneven), ranks_(static_cast<std::size_t>(uneven.ranks)) {
  for (int rank = 0; rank < case_.ranks; ++rank) lay_out(rank);
  for (int rank = 0; rank < case_.ranks; ++rank) expect(rank);
}

std::size_t UnevenProgram::size(int from, int to) const {
  int key = gathers() ? from : to;
  const int one = static_cast<int>(case_.seed % static_cast<std::uint64_t>(case_.ranks));
  if (case_.sizes == Sizes::of_one) return key == one ? case_.largest : 0;
  if (case_.sizes == Sizes::but_of_one) return key == one ? 0 : case_.largest;
  if (case_.sizes == Sizes::equal) return case_.largest;
  if (case_.algorithm->collective == Collective::alltoall) key += from * case_.ranks;
  const std::uint64_t drawn = draw(case_.seed, key);
  if (case_.sizes == Sizes::chunks) {
    return drawn % 3 * chunk_elements(case_.tuning, case_.type);
  }
  return drawn % (case_.largest + 1);
}

// The blocks in a random order, with elements between them that belong to nobody.
UnevenProgram::Side UnevenProgram::lay_out(int rank, bool sends) const {
  const Collective collective = case_.algorithm->collective;
  Side side;
  if (collective != Collective::alltoall && sends == gathers()) {
    side.elements = size(rank, rank);
    return side;
  }
  side.blocks.resize(ranks_.size());
  const RankOrder order = random_order(case_.ranks, case_.seed + (sends ? 1 : 2));
  for (int place = 0; place < case_.ranks; ++place) {
    const int other = order.rank_at(place);
    const std::size_t elements = sends ? size(rank, other) : size(other, rank);
    side.blocks[static_cast<std::size_t>(other)] = {side.elements, elements};
    side.elements += elements + draw(case_.seed, place) % 2;
  }
  return side;
}

// margin, send, margin, recv, margin. In place one of them is a block of the other.
void UnevenProgram::lay_out(int rank) {
  Rank& own = at(rank);
  own.send = lay_out(rank, true);
  own.recv = lay_out(rank, false);
  own.send.begin = margin;
  own.recv.begin = 2 * margin + own.send.elements * element();
  const auto r = static_cast<std::size_t>(rank);
  if (case_.in_place && gathers()) {
    own.send.begin = own.recv.begin + own.recv.blocks[r].begin * element();
  } else if (case_.in_place) {
    own.recv.begin = own.send.begin + own.send.blocks[r].begin * element();
  }
  own.memory.resize(3 * margin + (own.send.elements + own.recv.elements) * element());
  for (std::size_t i = 0; i < own.memory.size(); ++i) {
    own.memory[i] = static_cast<std::byte>(random_bits(case_.seed, r + 100, i));
  }
  own.before = own.expected = own.memory;
}

std::uint64_t UnevenProgram::factor(int rank) const {
  return case_.premultiplied ? static_cast<std::uint64_t>(rank) + 3 : 1;
}

const std::byte* UnevenProgram::sent(int from, int to) const {
  const Side& send = at(from).send;
  const std::size_t begin =
      send.blocks.empty() ? 0 : send.blocks[static_cast<std::size_t>(to)].begin;
  return at(from).before.data() + send.begin + begin * element();
}

std::byte* UnevenProgram::expected_at(int rank, int from) {
  const Side& recv = at(rank).recv;
  const std::size_t begin =
      recv.blocks.empty() ? 0 : recv.blocks[static_cast<std::size_t>(from)].begin;
  return at(rank).expected.data() + recv.begin + begin * element();
}

void UnevenProgram::expect_block(int rank, int from) {
  const std::size_t bytes = size(from, rank) * element();
  std::copy_n(sent(from, rank), bytes, expected_at(rank, from));
}

void UnevenProgram::expect(int rank) {
  if (!reduces_blocks()) {
    for (int from = 0; from < case_.ranks; ++from) expect_block(rank, from);
    return;
  }
  for (std::size_t i = 0; i < size(rank, rank); ++i) {
    std::uint64_t value = 0;
    for (int from = 0; from < case_.ranks; ++from) {
      const std::uint64_t input = combine_integers(
          case_.type, Op::prod, load_integer(case_.type, sent(from, rank) + i * element()),
          cut(case_.type, factor(from)));
      value = from == 0 ? input : combine_integers(case_.type, case_.op, value, input);
    }
    if (case_.op == Op::avg) value = divide_integer(case_.type, value, case_.ranks);
    std::memcpy(expected_at(rank, rank) + i * element(), &value, element());
  }
}

CollectiveArgs UnevenProgram::args(int rank) {
  Rank& own = at(rank);
  const auto buffer = [&](const Side& side) {
    return Bytes{own.memory.data() + side.begin, side.elements * element()};
  };
  CollectiveArgs args;
  args.collective = case_.algorithm->collective;
  args.send = buffer(own.send);
  args.recv = buffer(own.recv);
  args.count = case_.largest;
  args.type = case_.type;
  args.op = case_.op;
  args.tuning = case_.tuning;
  args.uneven = {own.send.blocks.empty() ? nullptr : own.send.blocks.data(),
                 own.recv.blocks.empty() ? nullptr : own.recv.blocks.data(), ranks_.size()};
  args.factor.used = case_.premultiplied;
  args.factor.bits = {factor(rank)};
  return args;
}

Task<Error> UnevenProgram::start(Call& call, int rank) {
  const CollectiveArgs given = args(rank);
  if (given.factor.used) return run_premultiplied(call, given, *case_.algorithm);
  return case_.algorithm->run(call, given);
}

void UnevenProgram::mistake(int rank, int from, int more) {
  Range& block = at(rank).recv.blocks[static_cast<std::size_t>(from)];
  block.size = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(block.size) + more);
  Rank& own = at(rank);
  own.recv.elements = std::max(own.recv.elements, block.begin + block.size);
  own.memory.resize(own.recv.begin + own.recv.elements * element() + margin);
}

std::string UnevenProgram::check_result(int rank) const {
  const Rank& own = at(rank);
  const auto [got, want] = std::ranges::mismatch(own.memory, own.expected);
  if (got == own.memory.end()) return {};
  const auto at = static_cast<std::size_t>(got - own.memory.begin());
  return fmt::format("rank {}: byte {} is wrong; send begins at {}, recv at {}", rank, at,
                     own.send.begin, own.recv.begin);
}

std::string run_case(const UnevenCase& c, SimConfig config) {
  const std::string name = describe(c);
  if (!is_wanted(name)) return {};
  config.ranks = c.ranks;
  World world(std::move(config));
  if (c.order != 0) world.set_order(random_order(c.ranks, c.order));
  if (!c.hosts.empty()) world.set_hosts(c.hosts);
  UnevenProgram program(c);
  std::string failure;
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  for (const Error& error : run_ranks(world, task)) {
    if (error && failure.empty()) failure = error.message();
  }
  for (int rank = 0; rank < c.ranks && failure.empty(); ++rank) {
    failure = program.check_result(rank);
    const std::size_t left = world.mailbox(rank).flow().backlog();
    if (left != 0) failure = fmt::format("rank {}: {} bytes that nobody receives", rank, left);
  }
  if (failure.empty()) failure = world.leaks();
  if (failure.empty()) return {};
  print_again(this_program() + " '[uneven]'", name);
  return name + "\n  " + failure;
}

}  // namespace pith::test
