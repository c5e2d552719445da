// Gradients for compressed calls: synthetic, with tails as heavy as in a training, or read from
// files. An element is a function of its rank and index, the same on every machine.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pith_perf {

class Gradients {
 public:
  // `folder`: raw little-endian *.f32 and *.f16 files; empty: synthetic. If names contain
  // `workerN`, each rank uses the files of one worker, else each starts with another file. Files
  // are scaled to a common root mean square. Throws std::runtime_error if there is nothing to read.
  explicit Gradients(const std::string& folder);

  // The first elements of the rank's gradient. Files are repeated up to the size; repetitions have
  // a little noise added.
  void fill(std::span<float> out, int rank) const;

  // Every call gets another gradient: the same memory from a later element on. With identical
  // gradients the order of gradient and residual would never change.
  static constexpr std::size_t shift_of_call(std::size_t call) {
    return call % calls_before_repetition * elements_between_calls;
  }
  // Additional elements that this memory needs beyond a call's vector.
  static constexpr std::size_t slack() { return calls_before_repetition * elements_between_calls; }

 private:
  static constexpr std::size_t calls_before_repetition = 16;
  static constexpr std::size_t elements_between_calls = 4096;

  struct File {
    int worker = 0;
    std::vector<float> values;
  };
  std::vector<const File*> files_of(int rank) const;

  std::vector<File> files_;
  int workers_ = 0;  // 0: not told by the names
};

}  // namespace pith_perf
