// density=auto on device memory, beside the same calls on host memory: the same densities, and so
// the same bits. With PITH_DETERMINISTIC=1, as no two times are the same.
#include <iterator>

#include "tests/cuda/compressed_world.hpp"
#include "tests/sanitized.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

class Deterministic {
 public:
  Deterministic() { setenv("PITH_DETERMINISTIC", "1", 1); }
  ~Deterministic() { unsetenv("PITH_DETERMINISTIC"); }
  Deterministic(const Deterministic&) = delete;
};

pithCompressorStats_t stats_of(pithCompressor_t compressor) {
  pithCompressorStats_t stats = {};
  stats.size = sizeof stats;
  REQUIRE(pithCompressorGetStats(compressor, &stats) == pithSuccess);
  return stats;
}

// Empty if all ranks of both sides have the same density and prediction.
std::string unlike(const Twins& twins) {
  const pithCompressorStats_t first = stats_of(twins.host.compressors[0]);
  for (const Side* side : {&twins.device, &twins.host}) {
    for (const pithCompressor_t compressor : side->compressors) {
      const pithCompressorStats_t stats = stats_of(compressor);
      if (stats.density_target != first.density_target) return "another density";
      if (stats.bypassed != first.bypassed) return "one call is dense";
      if (stats.predicted_seconds != first.predicted_seconds) return "another prediction";
    }
  }
  return {};
}

}  // namespace

TEST_CASE("densities that adapt on device memory are the host's") {
  const test::Device device;
  const Deterministic deterministic;
  const std::size_t ranks = GENERATE(2, 3);
  static constexpr const char* specs[] = {
      "topk:density=auto,bypass=never",          "topk:density=auto",
      "topk:density=0.2..1,bypass=never",        "topk:density=auto,objective=paper,bypass=never",
      "ar-topk:density=auto,bypass=never",       "ar-topk:density=0.05..0.9,objective=paper",
      "exdyna:density=auto,bypass=never",        "deft:density=auto,bypass=never",
      "topk:density=auto,quantise=auto",         "ar-topk:density=auto,quantise=bf16",
      "auto:schemes=topk+ar-topk+exdyna+spardl", "auto:schemes=bf16+onebit+gtopk+deft"};
  const int which = GENERATE(range(0, static_cast<int>(std::size(specs))));
  const int length = GENERATE(0, 1);
  if (!pith::test::is_due({which, static_cast<int>(ranks), length})) return;
  const char* const spec = specs[which];
  const std::size_t count = length == 0 ? 5003 : 150000;
  INFO(spec << " of " << count << " on " << ranks << " ranks");
  const Comms on_device(ranks);
  const Comms on_host(ranks);
  Twins twins(ranks, spec, count);
  for (unsigned number = 0; number < 8; ++number) {
    // What is left alone has other gains.
    const Input input = number == 6 ? Input::nothing : Input::apart;
    const float size = number == 3 ? 64.0f : 1.0f;
    CHECK(step(on_device, on_host, {&twins}, number, size, input) == "");
    CHECK(unlike(twins) == "");
  }
}

TEST_CASE("groups on device memory have the host's density") {
  const test::Device device;
  const Deterministic deterministic;
  const char* spec =
      GENERATE("topk:density=auto,bypass=never", "ar-topk:density=auto",
               "exdyna:density=auto,bypass=never", "auto:schemes=topk+ar-topk+spardl,bypass=never");
  INFO(spec);
  const Comms on_device(2);
  const Comms on_host(2);
  Twins small(2, spec, 100);
  Twins large(2, spec, 170000);
  Twins empty(2, spec, 0);
  for (unsigned number = 0; number < 7; ++number) {
    // Alone, too: then each has a density of its own.
    if (number % 3 == 2) {
      CHECK(step(on_device, on_host, {&small}, number) == "");
      CHECK(step(on_device, on_host, {&large}, number) == "");
      CHECK(step(on_device, on_host, {&empty}, number) == "");
    } else {
      CHECK(step(on_device, on_host, {&small, &large, &empty}, number) == "");
    }
    CHECK(unlike(small) == "");
    CHECK(unlike(large) == "");
  }
}

TEST_CASE("a density that adapts goes between host and device with its state") {
  const test::Device device;
  const Deterministic deterministic;
  const char* spec = GENERATE("topk:density=auto,bypass=never", "exdyna:density=auto,bypass=never");
  INFO(spec);
  const Comms on_device(2);
  const Comms on_host(2);
  Twins twins(2, spec, 70000);
  for (unsigned number = 0; number < 6; ++number) {
    REQUIRE(step(on_device, on_host, {&twins}, number) == "");
  }
  for (std::size_t r = 0; r < 2; ++r) renew_on_device(twins, r, spec);
  for (unsigned number = 6; number < 18; ++number) {
    CHECK(step(on_device, on_host, {&twins}, number) == "");
    CHECK(unlike(twins) == "");
  }
}
