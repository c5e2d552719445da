// Compressed calls in groups, in the background and with blocking = 0.
#include <deque>

#include "catch.hpp"
#include "compressed.hpp"

using namespace ranks;

namespace {

constexpr std::size_t sizes[] = {10, 1000, 1, 0, 777, 30'000};

// One compressor a tensor, as a framework's hook would hold them.
struct Layers {
  explicit Layers(const std::string& spec) {
    for (const std::size_t size : sizes) {
      compressors.emplace_back(spec);
      results.emplace_back(size);
      gradients.emplace_back(size);
    }
  }
  void draw(int rank, int step) {
    for (std::size_t i = 0; i < compressors.size(); ++i) {
      gradients[i] = gradient(rank, step * 100 + static_cast<int>(i), sizes[i]);
    }
  }
  void call(pithComm_t comm) {
    for (std::size_t i = 0; i < compressors.size(); ++i) {
      ok(compressed_sum(gradients[i], results[i], compressors[i], comm));
    }
  }

  std::deque<Compressor> compressors;
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<float>> results;
};

void ensure_same(Layers& a, Layers& b) {
  for (std::size_t i = 0; i < a.compressors.size(); ++i) {
    ensure(same_bits(a.results[i], b.results[i]), "another result");
    ensure(
        same_bits(residual_of(a.compressors[i], sizes[i]), residual_of(b.compressors[i], sizes[i])),
        "another residual");
  }
}

// Where a group has one leader, or one k or shares for all tensors, its calls are not those made
// alone; they are the same every time.
void group_alone_and_behind(Rank& self, pithComm_t comm, const std::string& spec) {
  const bool as_alone = spec.find("variance") == std::string::npos &&
                        spec.find("deft") == std::string::npos &&
                        spec.find("ok-topk") == std::string::npos;
  Layers alone(spec);
  Layers grouped(spec);
  Layers behind(spec);
  for (int step = 0; step < 3; ++step) {
    for (Layers* layers : {&alone, &grouped, &behind}) layers->draw(self.rank, step);
    if (as_alone) alone.call(comm);
    ok(pithGroupStart());
    grouped.call(comm);
    ok(pithGroupEnd());
    if (as_alone) ensure_same(alone, grouped);
    ok(pithGroupStart());
    behind.call(comm);
    pithRequest_t request = nullptr;
    ok(pithGroupEndAsync(&request));
    ok(pithWait(request));
    ensure_same(grouped, behind);
  }
}

}  // namespace

TEST_CASE("a group gives what its calls give alone", "[compress]") {
  for (Setup setup : every_link()) {
    setup.limit_s = 120;
    INFO(name_of(setup));
    CHECK(run(3, setup, [&](Rank& self) {
            const Comm comm(self.join());
            for (const std::string& spec : sparse_specs()) {
              part(spec, [&] { group_alone_and_behind(self, comm, spec); });
            }
          }) == "");
  }
}

TEST_CASE("groups of dense and mixed specs", "[compress]") {
  CHECK(run(2, every_link().at(2), [](Rank& self) {
          const Comm comm(self.join());
          for (const char* spec : {"none", "bf16", "topk:density=0.9"}) {
            Layers alone(spec);
            Layers grouped(spec);
            Layers others("topk:density=0.1,bypass=never");
            for (int step = 0; step < 3; ++step) {
              for (Layers* layers : {&alone, &grouped, &others}) layers->draw(self.rank, step);
              alone.call(comm);
              std::int64_t one = 1;
              ok(pithGroupStart());
              grouped.call(comm);
              ok(pithAllReduce(&one, &one, 1, pithInt64, pithSum, comm, nullptr));
              others.call(comm);
              ok(pithGroupEnd());
              ensure(one == 2, "the dense call of the group is wrong");
              for (std::size_t i = 0; i < alone.results.size(); ++i) {
                for (std::size_t j = 0; j < alone.results[i].size(); ++j) {
                  const float difference = alone.results[i][j] - grouped.results[i][j];
                  ensure(std::fabs(difference) < 1e-6f, "another result");
                }
              }
            }
          }
        }) == "");
}

TEST_CASE("one compressor has one call at a time", "[compress]") {
  CHECK(run(2, every_link().at(2), [](Rank& self) {
          const Comm comm(self.join());
          constexpr std::size_t count = 1000;
          const Compressor compressor("topk:density=0.1,bypass=never");
          std::vector<float> recv(count);
          const std::vector<float> send = gradient(self.rank, 0, count);
          ok(compressed_sum(send, recv, compressor, comm));
          const std::vector<float> before = residual_of(compressor, count);
          ok(pithGroupStart());
          ok(compressed_sum(send, recv, compressor, comm));
          fails(compressed_sum(send, recv, compressor, comm), pithInvalidUsage,
                {"in this group already"});
          pithCompressorStats_t stats;
          stats.size = sizeof stats;
          fails(pithCompressorGetStats(compressor, &stats), pithInvalidUsage, {"compressor"});
          fails(pithGroupEnd(), pithInvalidUsage, {"in this group already"});
          ensure(same_bits(residual_of(compressor, count), before), "the group changed something");

          // In the background: rank 1 comes later, so that rank 0's call is under way.
          pithRequest_t request = nullptr;
          ok(pithGroupStart());
          if (self.rank == 0) ok(compressed_sum(send, recv, compressor, comm));
          if (self.rank == 0) {
            ok(pithGroupEndAsync(&request));
            std::size_t bytes = 0;
            fails(pithCompressorGetStats(compressor, &stats), pithInvalidUsage, {"is busy"});
            fails(pithCompressorReset(compressor), pithInvalidUsage, {"is busy"});
            fails(pithCompressorSave(compressor, nullptr, &bytes), pithInvalidUsage, {"is busy"});
            fails(pithCompressorDestroy(compressor), pithInvalidUsage, {"is busy"});
            fails(compressed_sum(send, recv, compressor, comm), pithInvalidUsage, {"is busy"});
            self.meet();
            ok(pithWait(request));
          } else {
            ok(pithGroupEnd());
            self.meet();
            ok(compressed_sum(send, recv, compressor, comm));
          }
          ensure(stats_of(compressor).calls == 2, "a wrong number of calls");
          self.meet();
        }) == "");
}

TEST_CASE("compressed calls that do not block", "[compress]") {
  for (const std::string& spec : conserving_specs()) {
    INFO(spec);
    CHECK(run(2, {}, [&](Rank& self) {
            constexpr std::size_t count = 20'000;
            const Comm blocking(self.join());
            pithConfig_t config = PITH_CONFIG_INITIALIZER;
            config.blocking = 0;
            pithComm_t made = nullptr;
            ok(pithCommInitRankConfig(&made, self.size, self.id(1), self.rank, &config) ==
                       pithInProgress
                   ? pithSuccess
                   : pithInternalError);
            const auto wait = [&](pithResult_t result) {
              wait_until([&] {
                if (result != pithInProgress) return true;
                ok(pithCommGetAsyncError(made, &result));
                return result != pithInProgress;
              });
              ok(result);
            };
            wait(pithInProgress);
            const Comm comm(made);
            const Compressor expected(spec);
            const Compressor compressor(spec);
            for (int step = 0; step < 4; ++step) {
              const std::vector<float> send = gradient(self.rank, step, count);
              std::vector<float> right(count);
              std::vector<float> recv(count);
              ok(compressed_sum(send, right, expected, blocking));
              wait(compressed_sum(send, recv, compressor, comm));
              ensure(same_bits(recv, right), "another result");
            }
            self.meet();
          }) == "");
  }
}
