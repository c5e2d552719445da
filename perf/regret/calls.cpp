#include "regret/calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>

#include "frame/gradients.hpp"

namespace pith_perf {
namespace {

using pith::Collective;

Collective collective_of(const Cell& cell) {
  for (const pith::Algorithm& algorithm : pith::algorithms()) {
    if (name_of(algorithm.collective) == cell.collective) return algorithm.collective;
  }
  throw std::runtime_error(fmt::format("no collective is called {}", cell.collective));
}

std::span<float> floats(const Memory& memory, std::size_t count) {
  return {reinterpret_cast<float*>(memory.data()), count};
}

// `step` counts calls. Roots take turns: with the same root each time it would run ahead of the
// others, and the batch would not tell how long a call takes.
pithResult_t call_dense(Collective collective, const float* send, float* recv, std::size_t count,
                        std::size_t step, const Team& team) {
  const pithComm_t comm = team.comm(0);
  const int root = static_cast<int>(step % static_cast<std::size_t>(team.ranks()));
  switch (collective) {
    case Collective::allreduce:
      return pithAllReduce(send, recv, count, pithFloat32, pithSum, comm, nullptr);
    case Collective::reduce_scatter:
      return pithReduceScatter(send, recv, count, pithFloat32, pithSum, comm, nullptr);
    case Collective::allgather:
      return pithAllGather(send, recv, count, pithFloat32, comm, nullptr);
    case Collective::broadcast:
      return pithBroadcast(send, recv, count, pithFloat32, root, comm, nullptr);
    default:
      return pithInvalidArgument;
  }
}

pithCompressorStats_t stats_of(pithCompressor_t compressor) {
  pithCompressorStats_t stats = {};
  stats.size = sizeof(stats);
  must(pithCompressorGetStats(compressor, &stats), "pithCompressorGetStats");
  return stats;
}

}  // namespace

std::size_t count_of(const Cell& cell, int ranks) {
  const bool blocks = cell.collective == "reduce_scatter" || cell.collective == "allgather";
  const std::size_t count = cell.bytes / sizeof(float);
  return std::max<std::size_t>(blocks ? count / static_cast<std::size_t>(ranks) : count, 1);
}

Calls::Calls(const std::vector<Candidate>& candidates, const Team& control, std::size_t bytes_max,
             bool registered, bool sparse)
    : candidates_(candidates),
      control_(control),
      send_(std::max(bytes_max, sizeof(float) * static_cast<std::size_t>(control.ranks())),
            registered),
      recv_(std::max(bytes_max, sizeof(float) * static_cast<std::size_t>(control.ranks())),
            registered),
      gradient_(sparse ? bytes_max + (Gradients::slack() + 1) * sizeof(float) : sizeof(float),
                registered) {
  for (const Candidate& candidate : candidates) teams_.push_back(join(candidate, control));
  const std::span<float> send = floats(send_, bytes_max / sizeof(float));
  std::fill(send.begin(), send.end(), static_cast<float>(control.first_rank() + 1));
  if (!sparse) return;
  Gradients("").fill(floats(gradient_, bytes_max / sizeof(float) + Gradients::slack()),
                     control.first_rank());
}

std::vector<Calls::Contestant> Calls::of(const Cell& cell) {
  return cell.density > 0 ? sparse(cell) : dense(cell);
}

std::vector<Calls::Contestant> Calls::dense(const Cell& cell) {
  const Collective collective = collective_of(cell);
  const std::size_t count = count_of(cell, control_.ranks());
  std::vector<Contestant> all;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const std::string_view name = candidates_[i].name_for(collective);
    if (name.empty() || cell.bytes < candidates_[i].least_bytes) continue;
    const Team& team = *teams_[i];
    const auto call = [this, collective, count, &team, step = std::size_t{0}]() mutable {
      must(call_dense(collective, floats(send_, count).data(), floats(recv_, count).data(), count,
                      step++, team),
           "a collective");
    };
    all.push_back(
        {std::string(name), candidates_[i].algorithm(collective), call, candidates_[i].learns});
  }
  return all;
}

// Exchanges are forced by the compressor's spec, so these need no communicator of their own.
std::vector<Calls::Contestant> Calls::sparse(const Cell& cell) {
  compressors_.clear();
  const std::string density = fmt::format("density={}", cell.density);
  std::vector<Contestant> all;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    const bool differs = !candidate.name.empty() && candidate.name != "learn=0";
    if (!differs || cell.bytes < candidate.least_bytes) continue;
    all.push_back(compressed(cell, candidate.name, density, *teams_[i]));
    all.back().learns = candidate.learns;
  }
  for (const char* exchange : {"direct", "ring", "recursive-doubling", "split"}) {
    all.push_back(compressed(
        cell, exchange, fmt::format("{},exchange={},bypass=never", density, exchange), *teams_[0]));
  }
  // A call that is to deliver everything is made dense, residual included, as bypassed calls are.
  all.push_back(compressed(cell, "dense", "density=1", *teams_[0]));
  return all;
}

Calls::Contestant Calls::compressed(const Cell& cell, std::string name, const std::string& keys,
                                    const Team& team) {
  pithCompressor_t made = nullptr;
  must(pithCompressorCreate(&made, fmt::format("topk:{}", keys).c_str()), "pithCompressorCreate");
  compressors_.emplace_back(made);
  const std::size_t count = count_of(cell, control_.ranks());
  const auto call = [this, made, count, comm = team.comm(0), step = std::size_t{0}]() mutable {
    const float* send = floats(gradient_, 0).data() + Gradients::shift_of_call(step++);
    must(pithAllReduceCompressed(send, recv_.data(), count, pithFloat32, pithSum, made, comm,
                                 nullptr),
         "pithAllReduceCompressed");
  };
  return {std::move(name), nullptr, call, false};
}

// Only the ends of the result: that the right call was timed, not that the library works.
void Calls::check(const Cell& cell, const Contestant& contestant) {
  if (cell.density > 0) {
    const bool dense = contestant.name != "dense" || stats_of(compressors_.back().get()).bypassed;
    if (!dense) throw std::runtime_error("topk:density=1 was not made dense");
    return;
  }
  const Collective collective = collective_of(cell);
  const std::size_t count = count_of(cell, control_.ranks());
  const auto ranks = static_cast<std::size_t>(control_.ranks());
  const bool gathers = collective == Collective::allgather;
  const auto recv = floats(recv_, gathers ? count * ranks : count);
  recv.front() = recv.back() = -1;
  contestant.call();
  const auto last = static_cast<float>(ranks);
  const float sum = last * (last + 1) / 2;
  const bool from_any_root = recv.front() >= 1 && recv.front() <= last;
  if (gathers && recv.front() == 1 && recv.back() == last) return;
  if (reduces(collective) && recv.front() == sum && recv.back() == sum) return;
  if (has_root(collective) && from_any_root && recv.back() == recv.front()) return;
  throw std::runtime_error(fmt::format("{} of {} bytes, {}: wrong result", cell.collective,
                                       cell.bytes, contestant.name));
}

std::string Calls::chosen(const Cell& cell) const {
  if (cell.density > 0) {
    const pithCompressorStats_t stats = stats_of(compressors_.front().get());
    return stats.bypassed != 0 ? "dense" : stats.algorithm;
  }
  const char* algorithm = "";
  must(pithCommGetAlgorithm(teams_.front()->comm(0), cell.collective.c_str(),
                            count_of(cell, control_.ranks()), pithFloat32, &algorithm),
       "pithCommGetAlgorithm");
  return algorithm;
}

void Calls::close() {
  compressors_.clear();
  for (const std::unique_ptr<Team>& team : teams_) team->close();
}

}  // namespace pith_perf
