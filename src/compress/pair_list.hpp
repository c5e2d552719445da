// Pairs of indices and values in runs: the content of one rank's messages in one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/growing.hpp"
#include "core/dtype.hpp"
#include "core/sparse_kernel_args.hpp"

namespace pith {

// The pairs whose indices lie in [first, first + span).
SparseList part_of(const SparseList& list, DType type, std::size_t first, std::size_t span);

// Memory is kept by begin(), so that the steady state allocates nothing. Indices ascend within a
// run.
class PairList {
 public:
  void begin(DType type) {
    type_ = type;
    count_ = 0;
    runs_.clear();
  }
  DType type() const { return type_; }
  std::size_t count() const { return count_; }
  std::size_t runs() const { return runs_.size(); }

  // Room for n more pairs and one more run; invalidates pointers. The next run is written behind
  // the last one, at indices(count()) and values(count()), and completed by end_run(), which then
  // does not allocate.
  void reserve(std::size_t n) {
    if (runs_.size() == runs_.capacity()) runs_.reserve(least_runs + 2 * runs_.size());
    indices_.reserve(count_ + n, count_);
    values_.reserve((count_ + n) * size_of(type_), count_ * size_of(type_));
  }
  void end_run(std::size_t n) { end_run(n, runs()); }
  // For runs that arrive in any order: ends run `number`; missing runs are empty. May allocate.
  void end_run(std::size_t n, std::size_t number) {
    if (number >= runs()) runs_.resize(number + 1);
    runs_[number] = {count_, n};
    count_ += n;
  }

  // Of a list of float32, most of which may be zero: those that are not become a run, which is
  // returned.
  SparseList append_nonzero(const SparseList& list);

  std::uint32_t* indices(std::size_t from = 0) { return indices_.data() + from; }
  std::byte* values(std::size_t from = 0) { return values_.data() + from * size_of(type_); }
  SparseList run(std::size_t r) const {
    const Run& run = runs_[r];
    return {indices_.data() + run.begin, values_.data() + run.begin * size_of(type_), run.count};
  }
  // The pairs of a run whose indices lie in [first, first + span).
  SparseList part(std::size_t r, std::size_t first, std::size_t span) const {
    return part_of(run(r), type_, first, span);
  }
  std::byte* run_values(std::size_t r) { return values(runs_[r].begin); }

 private:
  struct Run {
    std::size_t begin = 0;
    std::size_t count = 0;
  };
  static constexpr std::size_t least_runs = 24;

  DType type_ = DType::f32;
  std::size_t count_ = 0;
  Growing<std::uint32_t> indices_;
  Growing<std::byte> values_;
  std::vector<Run> runs_;
};

}  // namespace pith
