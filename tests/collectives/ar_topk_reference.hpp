// AR-Topk and clt-k written as their papers do, on whole vectors: what the library's results,
// residuals and leaders must be, bit for bit where the values are float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

class ArTopkReference {
 public:
  explicit ArTopkReference(const SparseCase& c)
      : case_(c),
        spec_(*Spec::parse(c.spec)),
        part_(1 - low_pass_of(spec_)),
        workers_(static_cast<std::size_t>(c.ranks)) {
    for (Worker& worker : workers_) {
      for (const std::size_t count : c.counts) worker.residuals.emplace_back(count);
    }
  }

  // The step that the program has just made, with the gradients that it holds. Empty is good.
  std::string check(SparseProgram& program);

  std::vector<int> leaders;  // of all steps

 private:
  struct Worker {
    std::vector<std::vector<float>> residuals;  // by tensor; inside a step gradient plus residual
    std::vector<std::vector<float>> held;       // what the call does not look at
    std::vector<std::vector<bool>> finite;
    std::vector<std::deque<double>> norms;
    std::uint64_t waited = 0;
    double score = 0;
    double last_score = 0;
  };

  static std::vector<std::size_t> elected_by(const Worker& worker, std::size_t t, std::size_t k);
  std::size_t k(std::size_t t) const { return elected_of(spec_.density, case_.counts[t]); }
  void add_gradients(SparseProgram& program);
  double squares(const Worker& worker) const;
  double smoothed_norms(SparseProgram& program, int r);
  double margin(double score) const;
  bool counts() const;
  std::string check_leader(int leader);
  std::string check_statistics(SparseProgram& program, int leader, std::size_t t) const;
  bool delivers_nan() const;
  std::string check_tensor(SparseProgram& program, int leader, std::size_t t);
  void release(std::size_t t);
  std::string check_residuals(SparseProgram& program, std::size_t t) const;
  std::string check_conserved(SparseProgram& program, std::size_t t,
                              const std::vector<double>& losses);
  std::string check_nothing_delivered(SparseProgram& program, std::size_t t) const;

  SparseCase case_;
  Spec spec_;
  float part_;  // of residuals that calls hold back
  std::vector<Worker> workers_;
};

}  // namespace pith::test
