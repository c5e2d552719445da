#include "tools/demo/dataset.hpp"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace pith::demo {
namespace {

constexpr unsigned pixel_max = 16;

// One line: image_pixels numbers and the label, separated by commas.
bool parse_line(std::string_view line, Samples& samples) {
  const char* at = line.data();
  const char* const end = at + line.size();
  for (std::size_t field = 0; field <= image_pixels; ++field) {
    if (field > 0) {
      if (at == end || *at != ',') return false;
      ++at;
    }
    unsigned value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc{}) return false;
    at = next;
    if (value > (field < image_pixels ? pixel_max : class_count - 1)) return false;
    if (field < image_pixels) {
      samples.images.push_back(static_cast<float>(value) / static_cast<float>(pixel_max));
    } else {
      samples.labels.push_back(static_cast<std::uint8_t>(value));
    }
  }
  return at == end;
}

}  // namespace

void Samples::append(const Samples& from, std::size_t index) {
  const auto first = from.images.begin() + static_cast<std::ptrdiff_t>(index * image_pixels);
  images.insert(images.end(), first, first + static_cast<std::ptrdiff_t>(image_pixels));
  labels.push_back(from.labels[index]);
}

Samples read_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("cannot open the data set {}", path));
  Samples samples;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    if (!parse_line(line, samples)) {
      throw std::runtime_error(fmt::format("{}:{}: expected {} pixels of 0 to {} and a digit", path,
                                           number, image_pixels, pixel_max));
    }
  }
  if (samples.size() == 0) throw std::runtime_error(fmt::format("{} holds no samples", path));
  return samples;
}

std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  // Not std::shuffle: its result differs between standard libraries.
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  for (std::size_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[static_cast<std::size_t>(random() % left)]);
  }
  return order;
}

Samples gather(const Samples& from, std::span<const std::size_t> indices) {
  Samples picked;
  picked.images.reserve(indices.size() * image_pixels);
  picked.labels.reserve(indices.size());
  for (const std::size_t index : indices) picked.append(from, index);
  return picked;
}

Dataset split_digits(const Samples& all, std::uint64_t seed) {
  const std::vector<std::size_t> order = shuffled(all.size(), seed);
  const std::size_t test_size = (all.size() + 4) / 5;
  const std::span<const std::size_t> indices(order);
  return {gather(all, indices.subspan(test_size)), gather(all, indices.first(test_size))};
}

}  // namespace pith::demo
