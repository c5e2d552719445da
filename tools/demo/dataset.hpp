// The handwritten digits: reading, splitting, and gathering batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pith::demo {

inline constexpr std::size_t image_pixels = 64;
inline constexpr std::size_t class_count = 10;

// `images` is row major, image_pixels numbers in [0, 1] per sample.
struct Samples {
  std::vector<float> images;
  std::vector<std::uint8_t> labels;

  std::size_t size() const { return labels.size(); }
  void append(const Samples& from, std::size_t index);
};

struct Dataset {
  Samples train;
  Samples test;
};

// Throws std::runtime_error with the file and line of the first error.
Samples read_digits(const std::string& path);

// A fifth of the samples, rounded up, becomes the test set. The same seed gives the same split.
Dataset split_digits(const Samples& all, std::uint64_t seed);

// A permutation of 0 ... count-1 that depends only on the arguments, on every platform.
std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed);

// Copies the samples with these indices, in this order.
Samples gather(const Samples& from, std::span<const std::size_t> indices);

}  // namespace pith::demo
