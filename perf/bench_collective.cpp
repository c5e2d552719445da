#include "bench_collective.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <map>

namespace pith_bench {

namespace {

constexpr std::array names = {"allreduce", "allgather", "broadcast", "reduce_scatter", "alltoall"};

bool has_blocks(Collective collective) {
  return collective != Collective::allreduce && collective != Collective::broadcast;
}

float sum_of(std::size_t index, int ranks, int pass) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += element(index, rank, pass);
  return sum;
}

}  // namespace

std::string name_of(Collective collective) { return names[static_cast<std::size_t>(collective)]; }

void add_collective_option(CLI::App& app, Settings& settings) {
  std::map<std::string, Collective> known;
  for (std::size_t i = 0; i < names.size(); ++i) known[names[i]] = static_cast<Collective>(i);
  app.add_option("--collective", settings.collective, "what is timed; default allreduce")
      ->transform(CLI::CheckedTransformer(known));
}

std::size_t whole_count(Collective collective, std::size_t count, int ranks) {
  const auto blocks = static_cast<std::size_t>(ranks);
  return has_blocks(collective) ? (count + blocks - 1) / blocks * blocks : count;
}

std::size_t sent_count(Collective collective, std::size_t count, int ranks) {
  return collective == Collective::allgather ? count / static_cast<std::size_t>(ranks) : count;
}

std::size_t received_count(Collective collective, std::size_t count, const World& world) {
  if (collective == Collective::broadcast && world.rank() == 0) return 0;
  const bool is_block = collective == Collective::reduce_scatter;
  return is_block ? count / static_cast<std::size_t>(world.ranks()) : count;
}

float element(std::size_t index, int rank, int pass) {
  std::uint64_t hash =
      index + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(rank * 2 + pass + 1);
  hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9u;
  return static_cast<float>(hash >> 54);
}

float expected_element(Collective collective, std::size_t index, std::size_t count,
                       const World& world, int pass) {
  const std::size_t block = count / static_cast<std::size_t>(world.ranks());
  const std::size_t own_block = static_cast<std::size_t>(world.rank()) * block;
  switch (collective) {
    case Collective::allgather:
      return element(index % block, static_cast<int>(index / block), pass);
    case Collective::broadcast:
      return element(index, 0, pass);
    case Collective::reduce_scatter:
      return sum_of(own_block + index, world.ranks(), pass);
    case Collective::alltoall:
      return element(own_block + index % block, static_cast<int>(index / block), pass);
    case Collective::allreduce:
      break;
  }
  return sum_of(index, world.ranks(), pass);
}

double bus_factor(Collective collective, int ranks) {
  if (collective == Collective::broadcast) return 1;
  const double others = static_cast<double>(ranks - 1) / ranks;
  return collective == Collective::allreduce ? 2 * others : others;
}

}  // namespace pith_bench
