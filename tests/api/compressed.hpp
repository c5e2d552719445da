// Compressors for tests of the C API: gradients that every rank can compute, and what is kept.
#pragma once

#include <cmath>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace ranks {

// Specs that every rule of compressed calls holds for.
inline const std::vector<std::string>& sparse_specs() {
  static const std::vector<std::string> specs = {
      "topk:density=0.1,bypass=never",
      "topk:density=0.01,values=bf16,bypass=never",
      "topk:density=0.05,values=f16,bypass=never",
      "ok-topk:density=0.05,bypass=never",
      "gtopk:density=0.05,bypass=never",
      "exdyna:density=0.05,bypass=never",
      "micro:density=0.05,bypass=never",
      "ar-topk:density=0.05,bypass=never",
      "ar-topk:density=0.05,election=variance,values=bf16,bypass=never",
      "ar-topk:density=0.05,election=variance-lagged,score=raw,bypass=never",
      "deft:density=0.05,bypass=never",
  };
  return specs;
}
// Those, and the ones whose calls move every element of the accumulator.
inline std::vector<std::string> conserving_specs() {
  std::vector<std::string> specs = sparse_specs();
  specs.emplace_back("none");
  specs.emplace_back("topk:density=0.9");  // dense by bypass=auto
  return specs;
}

// Several parts of a test in one job, as a start takes longer than most of them: names the one that
// fails.
template <class Part>
void part(const std::string& name, const Part& body) {
  try {
    body();
  } catch (const std::exception& exception) {
    ensure(false, name + ": " + exception.what());
  }
}

// Destroys what it holds.
class Compressor {
 public:
  explicit Compressor(const std::string& spec) { ok(pithCompressorCreate(&handle_, spec.c_str())); }
  ~Compressor() { pithCompressorDestroy(handle_); }
  Compressor(Compressor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  operator pithCompressor_t() const { return handle_; }  // NOLINT(google-explicit-constructor)

 private:
  pithCompressor_t handle_ = nullptr;
};

// Heavy tails and some zeros, of magnitudes from 0 to 1/4.
inline std::vector<float> gradient(int rank, int step, std::size_t count) {
  std::vector<float> out(count);
  std::uint64_t bits = mix(static_cast<std::uint64_t>(rank) + 1, 77 + 31 * unsigned(step));
  for (std::size_t i = 0; i < count; ++i) {
    bits = bits * 0x5851F42D4C957F2DU + 0x14057B7EF767814FU;
    const float u = static_cast<float>(bits >> 40) / float(1 << 24) - 0.5f;
    out[i] = (bits >> 34 & 15) == 0 ? 0.0f : u * std::fabs(u);
  }
  return out;
}

inline void add_to(std::vector<double>& sums, const std::vector<float>& values) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += double(values[i]);
}

inline std::vector<float> residual_of(pithCompressor_t compressor, std::size_t count) {
  std::vector<float> out(count, -7);
  ok(pithCompressorGetResidual(compressor, out.data(), count));
  return out;
}

inline pithCompressorStats_t stats_of(pithCompressor_t compressor) {
  pithCompressorStats_t stats;
  stats.size = sizeof stats;
  ok(pithCompressorGetStats(compressor, &stats));
  return stats;
}

inline std::vector<char> saved(pithCompressor_t compressor) {
  std::size_t bytes = 0;
  ok(pithCompressorSave(compressor, nullptr, &bytes));
  std::vector<char> out(bytes);
  ok(pithCompressorSave(compressor, out.data(), &bytes));
  ensure(bytes == out.size(), "another number of bytes was saved");
  return out;
}

inline pithResult_t compressed_sum(const std::vector<float>& send, std::vector<float>& recv,
                                   pithCompressor_t compressor, pithComm_t comm) {
  return pithAllReduceCompressed(send.data(), recv.data(), send.size(), pithFloat32, pithSum,
                                 compressor, comm, nullptr);
}

// The sum over the ranks.
inline std::vector<double> sum_over(std::vector<double> values, pithComm_t comm) {
  ok(pithAllReduce(values.data(), values.data(), values.size(), pithFloat64, pithSum, comm,
                   nullptr));
  return values;
}

// Whether nothing was lost: gradients of all ranks = residuals of all ranks + results.
inline void ensure_conserved(const std::vector<double>& fed, const std::vector<double>& kept,
                             const std::vector<double>& received, Where where = Where::current()) {
  for (std::size_t i = 0; i < fed.size(); ++i) {
    const double difference = std::fabs(fed[i] - kept[i] - received[i]);
    const double scale = std::fabs(fed[i]) + std::fabs(kept[i]) + std::fabs(received[i]) + 0.1;
    if (difference < 1e-5 * scale) continue;
    ensure(false,
           "element " + std::to_string(i) + ": fed " + std::to_string(fed[i]) + ", kept " +
               std::to_string(kept[i]) + ", received " + std::to_string(received[i]),
           where);
  }
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::uint64_t bits_of(const std::vector<float>& values) {
  return hash_of(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float), 1);
}

}  // namespace ranks
