// Times the compression kernels one by one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pith_bench {

struct KernelTime {
  std::string name;
  double density;            // of the list; 0: no list
  double seconds;            // median
  double memcpy_seconds;     // for the same elements as float32, in the same rounds
  double bits_per_pair = 0;  // index and bf16 value; codings only
};

// Times every kernel on values made by fill(), interleaved.
std::vector<KernelTime> time_kernels(std::span<const float> values,
                                     const std::vector<double>& densities, int rounds);

double median(std::vector<double> values);

}  // namespace pith_bench
