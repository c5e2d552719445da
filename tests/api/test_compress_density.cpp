// density=auto, and bypass=auto by measured times: ranks change the density, or whether calls are
// dense, from call to call, all alike, and lose no gradient.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.hpp"
#include "compressed.hpp"
#include "tests/sanitized.hpp"

using namespace ranks;
using pith::test::is_due;

namespace {

constexpr std::size_t count = 200'000;
constexpr int calls = 40;

// Few elements are large.
float value(int rank, int call, std::size_t i) {
  const auto mixed = static_cast<std::uint32_t>(i * 2654435761u + std::size_t(rank) * 40503u +
                                                std::size_t(call) * 97u);
  const float power = std::bit_cast<float>((127 - 16 + (mixed >> 27)) << 23);  // 2^-16 to 2^15
  return (mixed & 1) != 0 ? power : -power;
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
  const std::string text = spec;
  const bool adapts = text.find("..") != text.npos || text.find("=auto") != text.npos;
  ensure(changes > 0 || !adapts, "the density never changed");
  // What was not delivered is in the residuals, but for what rounding loses.
  const bool rounds = text.find("bf16") != text.npos || text.find("onebit") != text.npos;
  const double tolerance = rounds ? 1e-2 : 1e-3;
  std::vector<float> residual(count);
  ok(pithCompressorGetResidual(compressor, residual.data(), count));
  std::vector<double> missing(count);
  for (std::size_t i = 0; i < count; ++i) missing[i] = given[i] - residual[i];
  std::vector<double> all(count);
  ok(pithAllReduce(missing.data(), all.data(), count, pithFloat64, pithSum, comm, nullptr));
  for (std::size_t i = 0; i < count; ++i) {
    ensure(std::abs(all[i] - delivered[i]) < tolerance * (1 + std::abs(delivered[i])),
           "gradient is lost");
  }
  pithCompressorDestroy(compressor);
}

// Vectors of one kind each: few elements are large, or all are alike.
struct Vectors {
  explicit Vectors(const char* spec) : compressors{Compressor(spec), Compressor(spec)} {}
  void call(int which, int rank, int number, pithComm_t comm) {
    const auto at = static_cast<std::size_t>(which);
    for (std::size_t i = 0; i < count; ++i) {
      gradients[at][i] = which == 0 ? value(rank, number, i) : 1 + 1e-6F * float(i % 97);
    }
    ok(compressed_sum(gradients[at], sums[at], compressors[at], comm));
  }

  std::array<Compressor, 2> compressors;
  std::array<std::vector<float>, 2> gradients{std::vector<float>(count), std::vector<float>(count)};
  std::array<std::vector<float>, 2> sums = gradients;
};

void meet_in_a_group(Rank& self, const char* spec) {
  const Comm comm(self.join());
  Vectors vectors(spec);
  for (int number = 0; number < 6; ++number) {
    for (int which = 0; which < 2; ++which) vectors.call(which, self.rank, number, comm);
  }
  const auto density = [&](std::size_t which) { return density_of(vectors.compressors[which]); };
  ensure(density(0) != density(1), "both have one density before they meet");
  for (int number = 6; number < 9; ++number) {
    ok(pithGroupStart());
    for (int which = 0; which < 2; ++which) vectors.call(which, self.rank, number, comm);
    ok(pithGroupEnd());
    ensure(density(0) == density(1), "a group has two densities");
    self.agree(std::bit_cast<std::uint64_t>(density(0)));
  }
}

}  // namespace

TEST_CASE("vectors of a group have one density, whatever they had before", "[density]") {
  Setup setup;
  setup.environment.emplace_back("PITH_DETERMINISTIC", "1");
  for (const char* spec : {"topk:density=auto,bypass=never", "topk:density=auto,quantise=bf16",
                           "auto:schemes=topk+onebit,bypass=never"}) {
    INFO(spec);
    CHECK(run(2, setup, [spec](Rank& self) { meet_in_a_group(self, spec); }) == "");
  }
}

TEST_CASE("densities that adapt are the same on all ranks, and nothing is lost",
          "[density][long]") {
  Setup setup;
  setup.limit_s = 120;
  int which = 0;
  for (const char* transport : {"shm", "tcp"}) {
    ++which;  // every day each over one of them
    for (const char* spec :
         {"topk:density=auto,bypass=never", "topk:density=auto", "ar-topk:density=0.0005..0.2",
          "topk:density=auto,objective=paper,bypass=never", "topk:density=0.05",
          "topk:density=auto,quantise=bf16", "ar-topk:density=auto,quantise=bf16,bypass=never",
          "ar-topk:density=0.02", "exdyna:density=auto,bypass=never",
          "deft:density=auto,bypass=never", "auto:schemes=topk+ar-topk+exdyna+spardl+onebit",
          "auto:schemes=bf16+ar-topk+gtopk+deft+3lc+efsign,bypass=never"}) {
      if (!is_due({which++})) continue;
      setup.transport = transport;
      INFO(spec << " over " << transport);
      CHECK(run(3, setup, [spec](Rank& self) { adapt(self, spec); }) == "");
    }
  }
}
