// The compression kernels one by one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pith_bench {

struct KernelTime {
  std::string name;
  double density;            // 0: of no list
  double seconds;            // median
  double memcpy_seconds;     // of the same elements as float32, in the same rounds
  double bits_per_pair = 0;  // index and bf16 value; of codings only
};

// Every kernel over values that fill() made, interleaved.
std::vector<KernelTime> time_kernels(std::span<const float> values,
                                     const std::vector<double>& densities, int rounds);

double median(std::vector<double> values);

}  // namespace pith_bench
