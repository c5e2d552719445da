// The vectors of the compression benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

namespace pith_bench {

// Zero-initialised memory, on huge pages if available, all pages present. T is trivial.
template <class T>
class Pages {
 public:
  explicit Pages(std::size_t count);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  std::span<T> span() const { return {data_, count_}; }

 private:
  std::size_t count_;
  std::size_t mapped_;
  void* mapping_;
  T* data_;
};

// gauss, laplace, student (2.5 degrees of freedom), layers (Gaussians with a different scale per
// layer), or data: the files of a folder, or one file, of raw float32 (.f32) or float16 (.f16)
// gradients, repeated to the length, each repetition rescaled and with 1 % of noise.
void fill(std::span<float> out, const std::string& distribution, const std::string& data_path,
          unsigned seed);

}  // namespace pith_bench
