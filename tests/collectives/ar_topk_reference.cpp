#include "tests/collectives/ar_topk_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "compress/ar_topk_scheme.hpp"
#include "tests/collectives/largest.hpp"
#include "tests/collectives/rounded.hpp"

namespace pith::test {

std::string ArTopkReference::check(SparseProgram& program) {
  add_gradients(program);
  const int leader = program.compressor(0).stats.leader;
  std::string failure = check_leader(leader);
  for (std::size_t t = 0; t < case_.counts.size() && failure.empty(); ++t) {
    failure = check_statistics(program, leader, t);
    if (failure.empty()) failure = check_tensor(program, leader, t);
  }
  leaders.push_back(leader);
  return failure;
}

std::vector<std::size_t> ArTopkReference::elected_by(const Worker& worker, std::size_t t,
                                                     std::size_t k) {
  const std::vector<float>& values = worker.residuals[t];
  std::vector<float> magnitudes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    magnitudes[i] = worker.finite[t][i] ? std::fabs(values[i]) : never_elected;
  }
  return largest(magnitudes, k);
}

void ArTopkReference::add_gradients(SparseProgram& program) {
  for (int r = 0; r < case_.ranks; ++r) {
    Worker& worker = workers_[static_cast<std::size_t>(r)];
    worker.finite.clear();
    worker.held.clear();
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      const std::vector<float>& gradient = program.gradient(r, t);
      std::vector<float>& sum = worker.residuals[t];
      std::vector<bool>& finite = worker.finite.emplace_back(sum.size(), true);
      std::vector<float>& held = worker.held.emplace_back(sum.size());
      for (std::size_t i = 0; i < sum.size(); ++i) {
        held[i] = part_ * sum[i];
        sum[i] -= held[i];
        finite[i] = std::isfinite(sum[i] + gradient[i]);
        if (finite[i]) sum[i] += gradient[i];
      }
    }
    if (election_of(spec_) == Election::staleness) continue;
    worker.score =
        score_kind_of(spec_) == Score::raw ? smoothed_norms(program, r) : squares(worker);
  }
}

double ArTopkReference::squares(const Worker& worker) const {
  double sum = 0;
  for (std::size_t t = 0; t < case_.counts.size(); ++t) {
    for (const std::size_t i : elected_by(worker, t, k(t))) {
      const double value = rounded(worker.residuals[t][i], spec_.values);
      sum += value * value;
    }
  }
  return sum;
}

double ArTopkReference::smoothed_norms(SparseProgram& program, int r) {
  Worker& worker = workers_[static_cast<std::size_t>(r)];
  worker.norms.resize(case_.counts.size());
  double sum = 0;
  for (std::size_t t = 0; t < case_.counts.size(); ++t) {
    double all = 0;
    for (const float value : program.gradient(r, t)) all += double(value) * double(value);
    std::deque<double>& norms = worker.norms[t];
    if (std::isfinite(all)) norms.push_front(std::sqrt(all));
    if (norms.size() > 25) norms.pop_back();
    double weighted = 0;
    double weights = 0;
    for (std::size_t age = 0; age < norms.size(); ++age) {
      weighted += std::pow(0.999, double(age + 1)) * norms[age];
      weights += std::pow(0.999, double(age + 1));
    }
    if (weights > 0) sum += weighted / weights;
  }
  return sum;
}

// Scores that differ by less than this may be ordered either way: they are sums in another order,
// and of lagged elections taken from a histogram, whose bins of subnormal magnitudes are wide.
double ArTopkReference::margin(double score) const {
  if (!counts()) return 1 - 1e-6;
  constexpr double normal = std::numeric_limits<float>::min();
  const std::size_t elements =
      std::accumulate(case_.counts.begin(), case_.counts.end(), std::size_t{0});
  return score < normal * normal * double(elements) ? 0 : 0.99;
}
bool ArTopkReference::counts() const {
  return election_of(spec_) == Election::variance_lagged && score_kind_of(spec_) != Score::raw;
}

std::string ArTopkReference::check_leader(int leader) {
  const std::uint64_t ranks = workers_.size();
  std::size_t expected = leaders.size() % ranks;
  const bool lagged = election_of(spec_) == Election::variance_lagged;
  if (election_of(spec_) != Election::staleness) {
    const auto score = [&](std::size_t r) {
      return lagged ? workers_[r].last_score : workers_[r].score;
    };
    expected = 0;
    for (std::size_t r = 1; r < ranks; ++r) {
      if (score(r) > score(expected)) expected = r;
    }
    std::size_t longest = 0;
    for (std::size_t r = 1; r < ranks; ++r) {
      if (workers_[r].waited > workers_[longest].waited) longest = r;
    }
    const auto seen = static_cast<std::size_t>(leader);
    if (lagged && workers_[longest].waited >= 4 * ranks) {
      expected = longest;
    } else if (seen < ranks && score(seen) >= margin(score(expected)) * score(expected)) {
      // Of equal ones the first rank's, but what a histogram tells of them need not be equal.
      const bool equal = score(seen) == score(expected);
      if (!equal || (counts() && score(seen) > 0)) expected = seen;
    }
  }
  for (Worker& worker : workers_) {
    ++worker.waited;
    worker.last_score = worker.score;
  }
  workers_[expected].waited = 0;
  if (leader == static_cast<int>(expected)) return {};
  return fmt::format("leader is {}, expected {}", leader, expected);
}

std::string ArTopkReference::check_statistics(SparseProgram& program, int leader,
                                              std::size_t t) const {
  for (int r = 0; r < case_.ranks; ++r) {
    const CompressorStats& stats = program.compressor(r, t).stats;
    if (stats.leader != leader) return fmt::format("rank {} names leader {}", r, stats.leader);
    if (r != leader && stats.selected_local != 0) return "a follower has elected";
  }
  return {};
}

bool ArTopkReference::delivers_nan() const {
  bool finite = true;
  for (const Worker& worker : workers_) {
    for (const std::vector<bool>& one : worker.finite) {
      finite = finite && std::find(one.begin(), one.end(), false) == one.end();
    }
  }
  return !finite && !spec_.drops_nonfinite;
}

std::string ArTopkReference::check_tensor(SparseProgram& program, int leader, std::size_t t) {
  if (delivers_nan()) {
    release(t);
    return check_nothing_delivered(program, t);
  }
  const auto indices = case_.counts[t] == 0
                           ? std::vector<std::size_t>()
                           : elected_by(workers_[static_cast<std::size_t>(leader)], t, k(t));
  std::vector<float> result(case_.counts[t]);
  std::vector<double> losses(case_.counts[t]);
  for (const std::size_t i : indices) {
    float sum = 0;
    for (std::size_t r = 0; r < workers_.size(); ++r) {
      float& own = workers_[r].residuals[t][i];
      const float sent = rounded(own, spec_.values);
      own -= sent;
      sum = r == 0 ? sent : sum + sent;
    }
    result[i] = case_.ranks == 1 ? sum : rounded(sum, spec_.values);
    losses[i] = double(sum) - double(result[i]);
    if (case_.average) result[i] /= float(case_.ranks);
  }
  release(t);
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (program.result(0, t)[i] != result[i]) {
      return fmt::format("result {} is {}, expected {}", i, program.result(0, t)[i], result[i]);
    }
  }
  return spec_.values == DType::f32 ? check_residuals(program, t)
                                    : check_conserved(program, t, losses);
}

void ArTopkReference::release(std::size_t t) {
  for (Worker& worker : workers_) {
    for (std::size_t i = 0; i < worker.residuals[t].size(); ++i) {
      worker.residuals[t][i] += worker.held[t][i];
    }
  }
}

std::string ArTopkReference::check_residuals(SparseProgram& program, std::size_t t) const {
  for (int r = 0; r < case_.ranks; ++r) {
    const std::vector<float> seen = program.residual(r, t);
    const std::vector<float>& own = workers_[static_cast<std::size_t>(r)].residuals[t];
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (seen[i] == own[i]) continue;
      return fmt::format("rank {}: residual {} is {}, expected {}", r, i, seen[i], own[i]);
    }
  }
  return {};
}

// Some rank has what the rounding of a sum lost, nobody else has anything more.
std::string ArTopkReference::check_conserved(SparseProgram& program, std::size_t t,
                                             const std::vector<double>& losses) {
  std::vector<double> more(losses.size());
  std::vector<double> scale(losses.size());
  for (int r = 0; r < case_.ranks; ++r) {
    const std::vector<float> seen = program.residual(r, t);
    std::vector<float>& own = workers_[static_cast<std::size_t>(r)].residuals[t];
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (losses[i] == 0 && seen[i] != own[i]) {
        return fmt::format("rank {}: residual {} is {}, expected {}", r, i, seen[i], own[i]);
      }
      more[i] += double(seen[i]) - double(own[i]);
      scale[i] += std::fabs(double(seen[i])) + std::fabs(losses[i]);
    }
    own = seen;
  }
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (std::fabs(more[i] - losses[i]) <= 1e-6 * scale[i]) continue;
    return fmt::format("residuals {} have {} more, expected {}", i, more[i], losses[i]);
  }
  return {};
}

std::string ArTopkReference::check_nothing_delivered(SparseProgram& program, std::size_t t) const {
  for (const float value : program.result(0, t)) {
    if (!std::isnan(value)) return fmt::format("result {}, expected nan", value);
  }
  return check_residuals(program, t);
}

}  // namespace pith::test
