#include "frame/gradients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <stdexcept>

#include "kernels/cast.hpp"

namespace pith_perf {
namespace {

namespace fs = std::filesystem;

constexpr double rms_of_all = 1e-3;
constexpr float noise_of_repeated = 0.01F;
constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t random_of(int rank, std::size_t index) {
  return mix(mix(static_cast<std::uint64_t>(rank + 1) * golden) + index * golden);
}

// The sum of four uniform numbers, scaled to variance 1.
float near_gaussian(std::uint64_t random) {
  float sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<float>(random >> (16 * part) & 0xffff);
  constexpr float mean = 4 * 65535.0F / 2;
  constexpr float deviation = 37837.2F;  // 65536 sqrt(4 / 12)
  return (sum - mean) / deviation;
}

// Some elements have large gradients on all ranks. Division by the fourth root of a uniform number
// gives a tail that falls with the fourth power, as Student's t has.
float made_up(int rank, std::size_t index) {
  constexpr int all_ranks = -1;
  const std::uint64_t shared = random_of(all_ranks, index) >> 40;
  const float uniform = (static_cast<float>(shared) + 1) * 0x1p-24F;
  const float gaussian = near_gaussian(random_of(rank, index));
  return static_cast<float>(rms_of_all) * gaussian / std::sqrt(std::sqrt(uniform));
}

std::optional<int> worker_of(const std::string& name) {
  static const std::regex pattern("worker([0-9]{1,4})");
  std::smatch match;
  if (!std::regex_search(name, match, pattern)) return std::nullopt;
  return std::stoi(match[1]);
}

std::vector<float> read_values(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  const pith::DType type = path.extension() == ".f16" ? pith::DType::f16 : pith::DType::f32;
  if (!stream || bytes.empty() || bytes.size() % pith::size_of(type) != 0) {
    throw std::runtime_error(fmt::format("--data: {}: {} bytes, expected a multiple of {}",
                                         path.string(), bytes.size(), pith::size_of(type)));
  }
  std::vector<float> values(bytes.size() / pith::size_of(type));
  pith::kernels::cast(reinterpret_cast<std::byte*>(values.data()), pith::DType::f32,
                      reinterpret_cast<const std::byte*>(bytes.data()), type, values.size());
  return values;
}

void scale_to_common_rms(std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double(value) * double(value);
  if (!std::isfinite(squares) || squares == 0) return;
  const double factor = rms_of_all / std::sqrt(squares / double(values.size()));
  for (float& value : values) value = static_cast<float>(value * factor);
}

std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".f32" || extension == ".f16") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  if (!paths.empty()) return paths;
  throw std::runtime_error(
      fmt::format("--data: {}: {}", folder, failure ? failure.message() : "no *.f32, no *.f16"));
}

}  // namespace

Gradients::Gradients(const std::string& folder) {
  if (folder.empty()) return;
  for (const fs::path& path : files_in(folder)) {
    const std::optional<int> worker = worker_of(path.filename().string());
    files_.push_back({worker.value_or(0), read_values(path)});
    scale_to_common_rms(files_.back().values);
    if (worker) workers_ = std::max(workers_, *worker + 1);
  }
}

void Gradients::fill(std::span<float> out, int rank) const {
  if (files_.empty()) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = made_up(rank, i);
    return;
  }
  const std::vector<const File*> own = files_of(rank);
  std::size_t at = 0;
  for (std::size_t turn = 0; at < out.size(); ++turn) {
    const File& file = *own[turn % own.size()];
    const float share = turn < own.size() ? 0 : noise_of_repeated;
    for (std::size_t i = 0; i < file.values.size() && at < out.size(); ++i, ++at) {
      out[at] = file.values[i] * (1 + share * near_gaussian(random_of(rank, at)));
    }
  }
}

std::vector<const Gradients::File*> Gradients::files_of(int rank) const {
  std::vector<const File*> own;
  for (const File& file : files_) {
    if (workers_ > 0 && file.worker == rank % workers_) own.push_back(&file);
  }
  if (!own.empty()) return own;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    own.push_back(&files_[(static_cast<std::size_t>(rank) + i) % files_.size()]);
  }
  return own;
}

}  // namespace pith_perf
