#include "perf/compress/scheme_table.hpp"

#include <future>

#include "compress/scheme.hpp"
#include "perf/compress/kernel_table.hpp"
#include "perf/frame/compressors.hpp"
#include "perf/frame/gradients.hpp"
#include "perf/frame/team.hpp"
#include "perf/machine.hpp"
#include "perf/must.hpp"

namespace pith_bench {

using namespace pith_perf;

namespace {

constexpr int warm_ups = 3;  // the first calls allocate, and have no threshold of an earlier one

// All ranks begin together; the slower one counts.
template <class Call>
double seconds_of(const Team& team, const char* name, const Call& call) {
  team.barrier();
  const double start = seconds_now();
  must(call(), name);
  return team.average(seconds_now() - start, Average::max);
}

}  // namespace

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const pith::Scheme* scheme : pith::schemes()) {
    if (scheme->lacks.empty()) names.emplace_back(scheme->name);
  }
  return names;
}

SchemeTable::SchemeTable(std::size_t count, Matrix matrix, int core,
                         const std::string& distribution, const std::string& data_path)
    : count_(count),
      matrix_(matrix),
      core_(core),
      gradients_{Pages<float>(count + Gradients::slack()),
                 Pages<float>(count + Gradients::slack())},
      results_{Pages<float>(count), Pages<float>(count)} {
  for (unsigned rank = 0; rank < ranks; ++rank) {
    fill(gradients_[rank].span(), distribution, data_path, rank + 1);
  }
}

SchemeTime SchemeTable::time(const std::string& spec, int rounds) {
  pithUniqueId id = {};
  must(pithGetUniqueId(&id), "pithGetUniqueId");
  const auto run = [&](int rank) { return time_rank(spec, rounds, id, rank); };
  auto other = std::async(std::launch::async, run, 1);
  auto first = std::async(std::launch::async, run, 0);
  other.get();
  return first.get();
}

SchemeTime SchemeTable::time_rank(const std::string& text, int rounds, const pithUniqueId& id,
                                  int rank) const {
  pin_to_core(core_ + rank);
  Team team(join(id, rank, 1, ranks), rank, ranks);
  const pith::Spec spec = spec_to_measure(text);
  const Compressors compressors(spec, team);
  state_shape(compressors[0]);
  const pithRedOp_t op = spec.scheme->averages_parameters ? pithAvg : pithSum;
  float* const out = results_[rank].data();
  std::vector<double> dense, whole;
  double select_s = 0, total_s = 0, bytes = 0;
  for (int round = 0; round < warm_ups + rounds; ++round) {
    const auto call = static_cast<std::size_t>(round);
    const float* const in = gradients_[rank].data() + Gradients::shift_of_call(call);
    const double dense_s = seconds_of(team, "pithAllReduce", [&] {
      return pithAllReduce(in, out, count_, pithFloat32, op, team.comm(0), nullptr);
    });
    const double whole_s = seconds_of(team, "pithAllReduceCompressed", [&] {
      return pithAllReduceCompressed(in, out, count_, pithFloat32, op, compressors[0], team.comm(0),
                                     nullptr);
    });
    if (round < warm_ups) continue;
    dense.push_back(dense_s);
    whole.push_back(whole_s);
    const pithCompressorStats_t stats = compressors.stats(0);
    select_s += stats.select_seconds;
    total_s += stats.total_seconds;
    bytes += static_cast<double>(stats.bytes_sent);
  }
  std::optional<double> share;
  if (spec.sparse()) share = team.average(select_s / total_s, Average::mean);
  const double bits = team.average(8 * bytes / rounds / double(count_), Average::mean);
  const std::string algorithm = compressors.stats(0).algorithm;
  team.close();
  return {spec.text(), algorithm, median(whole), median(dense), share, bits};
}

// What some schemes want to know; others take no notice. Matrices are as large as stated, but for
// the last rows.
void SchemeTable::state_shape(pithCompressor_t compressor) const {
  const auto [whole_rows, length] = matrix_;
  std::vector<std::size_t> rows, columns;
  const auto add = [&](std::size_t n, std::size_t m) {
    if (n == 0 || m == 0) return;
    rows.push_back(n);
    columns.push_back(m);
  };
  std::size_t left = count_;
  for (; left >= whole_rows * length; left -= whole_rows * length) add(whole_rows, length);
  add(left / length, length);
  add(1, left % length);
  must(pithCompressorSetShape(compressor, rows.data(), columns.data(), rows.size()),
       "pithCompressorSetShape");
  const int from = 0, to = 1;  // the ring of two ranks
  must(pithCompressorSetGraph(compressor, &from, &to, 1), "pithCompressorSetGraph");
}

}  // namespace pith_bench
