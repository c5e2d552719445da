// By what factor calls take longer than an algorithm's cost function says, learnt by algorithm and
// size: so the functions need not be right, only regular.
//
// In each cell (algorithm, size class) the running mean of log(measured / predicted),
// where a call that surprises by more than 1.5 standard deviations is taken for one that does so by
// 1.5 (P. Huber and E. Ronchetti, Robust Statistics, 2009, calls that modified residuals), and old
// ones are forgotten. What a cell answers joins its own mean with its neighbours' and with the
// expectation of no error, each weighted by its certainty, as for normal distributions (A. Gelman
// et al., Bayesian Data Analysis, section 2.5). A neighbour is as certain as its own mean is, less
// what the factor may change between sizes (a random walk). So few samples change little, and where
// there are many, neighbours do not matter.
//
// Not for several threads; allocates only when it is made.
#pragma once

#include <cstddef>
#include <vector>

#include "model/robust.hpp"

namespace pith {

class CostCorrection {
 public:
  struct Options {
    double samples = 64;           // how many of late samples decide a cell
    double expected_log_sd = 0.5;  // how wrong cost functions are without correction
    double change_log_sd = 0.106;  // between neighbours in size
  };

  // Algorithms are numbered from 0, as in their table.
  CostCorrection(std::size_t algorithms, const Options& options);
  explicit CostCorrection(std::size_t algorithms) : CostCorrection(algorithms, Options()) {}

  // A call that was predicted without correction. Times that are not positive are ignored.
  void add(std::size_t algorithm, std::size_t bytes, double measured, double predicted);
  // By which a prediction is multiplied.
  Estimated factor(std::size_t algorithm, std::size_t bytes) const;
  // The standard deviation of a call's logarithm.
  double noise(std::size_t algorithm, std::size_t bytes) const;
  // The times of the cell have changed: its mean counts as one sample from now on.
  void forget(std::size_t algorithm, std::size_t bytes);

 private:
  struct Cell {
    double mean = 0;    // of logarithms
    double weight = 0;  // how many samples are in it
    NoiseScale noise;
  };
  // Of a logarithm.
  struct Belief {
    double mean = 0;
    double variance = 0;
  };
  Belief belief(std::size_t algorithm, std::size_t size) const;

  Options options_;
  std::vector<Cell> cells_;  // by algorithm, then size
};

}  // namespace pith
