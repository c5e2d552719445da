// density=auto, and bypass=auto by measured times: ranks change the density, or whether calls are
// dense, from call to call, all alike, and lose no gradient.
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr std::size_t count = 200'000;
constexpr int calls = 40;

// Few elements are large.
float value(int rank, int call, std::size_t i) {
  const auto mixed = static_cast<std::uint32_t>(i * 2654435761u + std::size_t(rank) * 40503u +
                                                std::size_t(call) * 97u);
  return std::ldexp(1.0F, static_cast<int>(mixed >> 27) - 16) * ((mixed & 1) != 0 ? 1.0F : -1.0F);
}

// Of the last call; of a dense one 1.
double density_of(pithCompressor_t compressor) {
  pithCompressorStats_t stats = {};
  stats.size = sizeof stats;
  ok(pithCompressorGetStats(compressor, &stats));
  return stats.bypassed ? 1 : stats.density_target;
}

std::uint64_t hash(const std::vector<float>& values) {
  std::uint64_t result = 0;
  for (const float one : values) {
    result = (result ^ std::bit_cast<std::uint32_t>(one)) * 0x9e3779b97f4a7c15u;
  }
  return result;
}

void adapt(Rank& self, const char* spec) {
  const Comm comm(self.join());
  pithCompressor_t compressor = nullptr;
  ok(pithCompressorCreate(&compressor, spec));
  std::vector<float> gradient(count);
  std::vector<float> sum(count);
  std::vector<double> given(count);
  std::vector<double> delivered(count);
  int changes = 0;
  for (int call = 0; call < calls; ++call) {
    for (std::size_t i = 0; i < count; ++i) {
      gradient[i] = value(self.rank, call, i);
      given[i] += gradient[i];
    }
    const double before = density_of(compressor);
    ok(pithAllReduceCompressed(gradient.data(), sum.data(), count, pithFloat32, pithSum, compressor,
                               comm, nullptr));
    for (std::size_t i = 0; i < count; ++i) delivered[i] += sum[i];
    const double density = density_of(compressor);
    changes += call > 0 && density != before;
    self.agree(std::bit_cast<std::uint64_t>(density));
    self.agree(hash(sum));
  }
  const bool is_fixed = std::string(spec).find("..") == std::string::npos &&
                        std::string(spec).find("auto") == std::string::npos;
  ensure(changes > 0 || is_fixed, "the density never changed");
  // What was not delivered is in the residuals.
  std::vector<float> residual(count);
  ok(pithCompressorGetResidual(compressor, residual.data(), count));
  std::vector<double> missing(count);
  for (std::size_t i = 0; i < count; ++i) missing[i] = given[i] - residual[i];
  std::vector<double> all(count);
  ok(pithAllReduce(missing.data(), all.data(), count, pithFloat64, pithSum, comm, nullptr));
  for (std::size_t i = 0; i < count; ++i) {
    ensure(std::abs(all[i] - delivered[i]) < 1e-3 * (1 + std::abs(delivered[i])),
           "gradient is lost");
  }
  pithCompressorDestroy(compressor);
}

}  // namespace

TEST_CASE("densities that adapt are the same on all ranks, and nothing is lost", "[density]") {
  Setup setup;
  setup.limit_s = 120;
  for (const char* transport : {"shm", "tcp"}) {
    for (const char* spec :
         {"topk:density=auto,bypass=never", "topk:density=auto", "ar-topk:density=0.0005..0.2",
          "topk:density=auto,objective=paper,bypass=never", "topk:density=0.05",
          "ar-topk:density=0.02", "exdyna:density=auto,bypass=never",
          "deft:density=auto,bypass=never"}) {
      setup.transport = transport;
      INFO(spec << " over " << transport);
      CHECK(run(3, setup, [spec](Rank& self) { adapt(self, spec); }) == "");
    }
  }
}
