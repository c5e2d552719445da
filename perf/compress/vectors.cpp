#include "perf/compress/vectors.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <vector>

#include "kernels/cast.hpp"

namespace pith_bench {

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

// This many elements are drawn once, then reused in another order.
constexpr std::size_t drawn = std::size_t{1} << 22;

std::vector<float> draw(const std::string& distribution, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::exponential_distribution<float> exponential;
  std::student_t_distribution<float> student(2.5f);
  std::vector<float> values(drawn);
  for (float& value : values) {
    if (distribution == "laplace") {
      value = std::copysign(exponential(random), normal(random));
    } else if (distribution == "student") {
      value = student(random);
    } else {
      value = normal(random);
    }
  }
  return values;
}

void append_file(std::vector<float>& values, const std::filesystem::path& path) {
  const std::string ending = path.extension();
  if (ending != ".f32" && ending != ".f16") return;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const bool half = ending == ".f16";
  const std::size_t count = bytes.size() / (half ? 2 : 4);
  const std::size_t old = values.size();
  values.resize(old + count);
  auto* out = reinterpret_cast<std::byte*>(values.data() + old);
  const auto* in = reinterpret_cast<const std::byte*>(bytes.data());
  if (half) {
    pith::kernels::cast(out, pith::DType::f32, in, pith::DType::f16, count);
  } else {
    std::memcpy(out, in, 4 * count);
  }
}

std::vector<float> read_all(const std::string& path) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry);
    std::sort(files.begin(), files.end());
  } else {
    files.emplace_back(path);
  }
  std::vector<float> values;
  for (const auto& file : files) append_file(values, file);
  if (values.empty()) {
    throw std::runtime_error(
        fmt::format("--data: '{}' has no .f32 or .f16 file with numbers", path));
  }
  return values;
}

void repeat_real(std::span<float> out, const std::vector<float>& real, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  double squares = 0;
  for (const float value : real) squares += double(value) * double(value);
  const auto rms = static_cast<float>(std::sqrt(squares / double(real.size())));
  for (std::size_t i = 0; i < out.size();) {
    const float scale = 1 / (rms * (1 + 0.1f * std::fabs(normal(random))));
    for (const float value : real) {
      if (i == out.size()) return;
      const auto noise = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-31f;
      out[i++] = scale * (value + 0.01f * rms * noise);
    }
  }
}

}  // namespace

template <class T>
Pages<T>::Pages(std::size_t count) : count_(count), mapped_(count * sizeof(T) + huge_page) {
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    throw std::runtime_error(fmt::format("no memory for {} bytes: shrink --count", mapped_));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  const std::uintptr_t aligned = (address + huge_page - 1) / huge_page * huge_page;
  data_ = reinterpret_cast<T*>(aligned);
  madvise(data_, count * sizeof(T), MADV_HUGEPAGE);
  std::memset(data_, 0, count * sizeof(T));
}

template <class T>
Pages<T>::~Pages() {
  munmap(mapping_, mapped_);
}

template class Pages<float>;
template class Pages<std::uint32_t>;
template class Pages<std::byte>;

void fill(std::span<float> out, const std::string& distribution, const std::string& data_path,
          unsigned seed) {
  if (distribution == "data") return repeat_real(out, read_all(data_path), seed);
  const bool layers = distribution == "layers";
  const std::vector<float> values = draw(distribution, seed);
  std::mt19937_64 random(seed + 1);
  std::normal_distribution<float> normal;
  std::size_t layer_end = 0;
  float scale = 1;
  std::size_t from = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i % drawn == 0) from = random() % drawn;
    if (layers && i == layer_end) {
      layer_end += (std::size_t{1} << (10 + random() % 11)) + random() % 1000;
      scale = std::exp(1.5f * normal(random));
    }
    out[i] = scale * values[(i + from) % drawn];
  }
}

}  // namespace pith_bench
