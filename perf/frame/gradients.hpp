// Gradients for compressed calls: made up, with tails as heavy as those of a training, or read from
// files. An element is a function of its rank and its index, the same on every machine.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pith_perf {

class Gradients {
 public:
  // `folder`: of raw little-endian *.f32 and *.f16 files; empty: made up. Where names have a part
  // `workerN`, each rank takes those of one worker, else each begins with another file. Files are
  // scaled to one root mean square. Throws std::runtime_error where there is nothing to read.
  explicit Gradients(const std::string& folder);

  // The first elements of this rank's gradient. Files are repeated up to the size, from the second
  // time on with a little noise.
  void fill(std::span<float> out, int rank) const;

  // Every call gets another gradient: the same memory, from another element on. Where the elements
  // stayed the same from call to call, gradient and residual would keep their order.
  static constexpr std::size_t shift_of_call(std::size_t call) {
    return call % calls_before_repetition * elements_between_calls;
  }
  // How much longer than a call's vector that memory is.
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
  int workers_ = 0;  // 0: names do not tell
};

}  // namespace pith_perf
