// Compressed calls: what they give, and what they leave, on every link.
#include <limits>

#include "catch.hpp"
#include "compressed.hpp"
#include "tests/sanitized.hpp"

using namespace ranks;
using pith::test::is_due;

namespace {

Setup threads() {
  Setup setup;
  setup.way = Way::all;
  setup.transport = "local";
  return setup;
}

// Some steps; nothing is lost, and all ranks get the same bits.
void run_steps(Rank& self, pithComm_t comm, const std::string& spec, std::size_t count) {
  const Compressor compressor(spec);
  std::vector<double> fed(count);
  std::vector<double> received(count);
  std::vector<float> recv(count, -1);
  for (int step = 0; step < 5; ++step) {
    const std::vector<float> send = gradient(self.rank, step, count);
    ok(compressed_sum(send, recv, compressor, comm));
    self.agree(ranks::bits_of(recv));
    add_to(fed, send);
    add_to(received, recv);
    const pithCompressorStats_t stats = stats_of(compressor);
    ensure(stats.calls == unsigned(step) + 1 && stats.count == count, "wrong calls or count");
    ensure(stats.total_seconds > 0 && stats.exchange_seconds >= 0, "no times");
  }
  std::vector<double> kept(count);
  add_to(kept, residual_of(compressor, count));
  ensure_conserved(sum_over(fed, comm), sum_over(kept, comm), received);
}

struct Steps {
  std::string spec;
  std::size_t count;
};

// All in one job.
std::string run_all(Setup setup, const std::vector<Steps>& all) {
  setup.limit_s = 120;
  return run(3, setup, [&](Rank& self) {
    const Comm comm(self.join());
    for (const auto& [spec, count] : all) {
      part(spec + ", count " + std::to_string(count), [&] { run_steps(self, comm, spec, count); });
    }
  });
}

}  // namespace

TEST_CASE("no gradient is lost", "[compress]") {
  constexpr std::size_t counts[] = {1, 1000, 70'001};
  int link = 0;
  for (const Setup& setup : every_link()) {
    int which = ++link;
    std::vector<Steps> all;
    for (const std::string& spec : conserving_specs()) {
      const bool once = spec.find("ar-topk") == 0 || spec.find("deft") == 0;
      ++which;
      for (int i = 0; i < 3; ++i) {
        const std::size_t count = counts[i];
        if ((!once || count != 1000) && is_due({which, i})) all.push_back({spec, count});
      }
    }
    INFO(name_of(setup));
    CHECK(run_all(setup, all) == "");
  }
}

TEST_CASE("no gradient is lost in parcels and rounds", "[compress]") {
  int link = 0;
  for (Setup setup : every_link()) {
    setup.environment.emplace_back("PITH_CHUNK", "1024");
    int which = ++link;
    std::vector<Steps> all;
    for (const std::string& spec : sparse_specs()) {
      if (is_due({++which})) all.push_back({spec, 200'000});  // each on every second link
    }
    INFO(name_of(setup));
    CHECK(run_all(setup, all) == "");
  }
}

TEST_CASE("dense specs give the sum and leave nothing", "[compress]") {
  for (const Setup& setup : every_link()) {
    for (const bool rounds : {false, true}) {
      INFO(name_of(setup) << (rounds ? ", bf16" : ", none"));
      CHECK(run(3, setup, [&](Rank& self) {
              constexpr std::size_t count = 100'003;
              const Comm comm(self.join());
              const Compressor compressor(rounds ? "bf16" : "none");
              std::vector<float> recv(count);
              for (int step = 0; step < 3; ++step) {
                ok(compressed_sum(gradient(self.rank, step, count), recv, compressor, comm));
                self.agree(ranks::bits_of(recv));
                std::vector<double> sum(count);
                for (int r = 0; r < self.size; ++r) add_to(sum, gradient(r, step, count));
                for (std::size_t i = 0; i < count; ++i) {
                  const double limit = rounds ? 0.02 * 0.25 : 1e-6;
                  ensure(std::fabs(double(recv[i]) - sum[i]) < limit, "a wrong sum");
                }
                ensure(residual_of(compressor, count) == std::vector<float>(count), "a residual");
                ensure(stats_of(compressor).density == 1, "a wrong density");
              }
            }) == "");
    }
  }
}

TEST_CASE("bypass takes the residual with it", "[compress]") {
  CHECK(run(2, threads(), [](Rank& self) {
          constexpr std::size_t count = 5000;
          const Comm comm(self.join());
          const Compressor compressor("topk:density=0.9");
          std::vector<float> residual(count, static_cast<float>(self.rank + 1));
          void* accumulator = nullptr;
          ok(pithCompressorGetAccumulator(compressor, &accumulator, count, pithFloat32));
          std::memcpy(accumulator, residual.data(), count * sizeof(float));
          std::vector<float> recv(count);
          ok(pithAllReduceCompressed(nullptr, recv.data(), count, pithFloat32, pithSum, compressor,
                                     comm, nullptr));
          ensure(recv == std::vector<float>(count, 3), "not all was delivered");
          ensure(residual_of(compressor, count) == std::vector<float>(count), "a residual");
          const pithCompressorStats_t stats = stats_of(compressor);
          ensure(stats.bypassed == 1 && stats.calls == 1, "no bypass, or no call");
          ensure(std::string(stats.algorithm) == "dense" && stats.gain == 1, "other statistics");
        }) == "");
}

TEST_CASE("a non-finite gradient on one rank", "[compress]") {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<std::string> specs = conserving_specs();
  specs.emplace_back("bf16");
  for (const std::string& spec : specs) {
    INFO(spec);
    CHECK(run(3, threads(), [&](Rank& self) {
            constexpr std::size_t count = 3000;
            const Comm comm(self.join());
            const Compressor compressor(spec);
            std::vector<float> recv(count);
            ok(compressed_sum(gradient(self.rank, 0, count), recv, compressor, comm));
            std::vector<float> expected = residual_of(compressor, count);
            std::vector<float> send = gradient(self.rank, 1, count);
            if (self.rank == 1) send[7] = infinity;
            ok(compressed_sum(send, recv, compressor, comm));
            for (const float value : recv) ensure(std::isnan(value), "a number in the result");
            self.agree(ranks::bits_of(recv));
            for (std::size_t i = 0; i < count; ++i) {
              if (std::isfinite(send[i])) expected[i] += send[i];
            }
            const std::vector<float> kept = residual_of(compressor, count);
            for (std::size_t i = 0; i < count; ++i) {
              ensure(std::fabs(kept[i] - expected[i]) < 1e-6f, "another residual");
            }
            ensure(stats_of(compressor).nonfinite == (self.rank == 1 ? 1 : 0), "not counted");
            ensure(stats_of(compressor).calls == 2, "the call does not count");
            ok(compressed_sum(gradient(self.rank, 2, count), recv, compressor, comm));
            for (const float value : recv) ensure(std::isfinite(value), "still not finite");
          }) == "");
  }
}

TEST_CASE("half and bfloat16 gradients at odd addresses", "[compress]") {
  std::vector<std::string> specs = conserving_specs();
  specs.emplace_back("bf16");
  for (const std::string& spec : specs) {
    for (const pithDataType_t type : {pithFloat16, pithBfloat16, pithFloat32}) {
      INFO(spec << ", type " << type);
      CHECK(run(3, threads(), [&](Rank& self) {
              constexpr std::size_t count = 2049;
              const Comm comm(self.join());
              const Compressor compressor(spec);
              const std::size_t unit = ranks::size_of(type);
              const Buffer send(count * unit, false, 1);
              const Buffer recv(count * unit, false, 3);
              for (std::size_t i = 0; i < count; ++i) {
                store(send.data(), i, type, i % 97 == 0 ? 8 : 0);
                store(recv.data(), i, type, 5);
              }
              for (const pithRedOp_t op : {pithSum, pithAvg}) {
                // 22 of 2049: with density 0.01 two of them stay for later.
                ok(pithAllReduceCompressed(send.data(), recv.data(), count, type, op, compressor,
                                           comm, nullptr));
                std::size_t wrong = 0;
                for (std::size_t i = 0; i < count; ++i) {
                  const unsigned sum = op == pithSum ? 24 : 8;
                  const bool elected = i % 97 == 0 && holds(recv.data(), i, type, sum);
                  wrong += elected || holds(recv.data(), i, type, 0) ? 0 : 1;
                }
                ensure(wrong <= 2, std::to_string(wrong) + " wrong elements");
              }
            }) == "");
    }
  }
}

TEST_CASE("count 0, one rank, in place, zeros", "[compress]") {
  for (const std::string& spec : conserving_specs()) {
    for (const int size : {1, 2}) {
      INFO(spec << ", " << size << " ranks");
      CHECK(run(size, threads(), [&](Rank& self) {
              const Comm comm(self.join());
              const Compressor empty(spec);
              ok(pithAllReduceCompressed(nullptr, nullptr, 0, pithFloat32, pithSum, empty, comm,
                                         nullptr));
              ensure(stats_of(empty).calls == 1 && stats_of(empty).count == 0, "no call");
              ok(pithCompressorGetResidual(empty, nullptr, 0));

              constexpr std::size_t count = 500;
              const Compressor apart(spec);
              const Compressor in_place(spec);
              std::vector<float> recv(count);
              for (int step = 0; step < 3; ++step) {
                std::vector<float> both = gradient(self.rank, step, count);
                ok(compressed_sum(both, recv, apart, comm));
                ok(compressed_sum(both, both, in_place, comm));
                ensure(same_bits(both, recv), "in place is another result");
              }
              // What was kept is elected without a gradient.
              const std::vector<float> kept = residual_of(apart, count);
              const std::vector<float> zeros(count);
              std::vector<float> without(count);
              ok(pithAllReduceCompressed(nullptr, without.data(), count, pithFloat32, pithSum,
                                         apart, comm, nullptr));
              ok(compressed_sum(zeros, recv, in_place, comm));
              ensure(same_bits(without, recv), "no gradient is another result than zeros");
              if (size == 1) {
                const std::vector<float> left = residual_of(apart, count);
                for (std::size_t i = 0; i < count; ++i) {
                  ensure(left[i] + without[i] == kept[i], "one rank: lost");
                }
              }
            }) == "");
    }
  }
}

TEST_CASE("the result as pairs", "[compress]") {
  for (const std::string& spec : conserving_specs()) {
    INFO(spec);
    CHECK(run(3, threads(), [&](Rank& self) {
            constexpr std::size_t count = 4000;
            const Comm comm(self.join());
            const Compressor dense(spec);
            const Compressor sparse(spec);
            for (int step = 0; step < 3; ++step) {
              const std::vector<float> send = gradient(self.rank, step, count);
              std::vector<float> recv(count);
              ok(compressed_sum(send, recv, dense, comm));
              std::vector<std::uint64_t> indices(count);
              std::vector<float> values(count);
              std::size_t n = 0;
              ok(pithAllReduceCompressedSparse(send.data(), indices.data(), values.data(), count,
                                               &n, count, pithFloat32, pithSum, sparse, comm,
                                               nullptr));
              std::vector<float> from_pairs(count);
              for (std::size_t i = 0; i < n; ++i) {
                ensure(i == 0 || indices[i - 1] < indices[i], "the indices do not rise");
                from_pairs[indices[i]] = values[i];
              }
              ensure(from_pairs == recv, "another result");
            }
          }) == "");
  }
}

TEST_CASE("too little room for the pairs", "[compress]") {
  for (const std::string& spec : conserving_specs()) {
    INFO(spec);
    CHECK(run(2, threads(), [&](Rank& self) {
            constexpr std::size_t count = 1000;
            const Comm comm(self.join());
            const Compressor compressor(spec);
            const std::vector<float> send = gradient(self.rank, 0, count);
            std::vector<std::uint64_t> indices(count);
            std::vector<float> values(count);
            std::size_t n = 0;
            // Rank 0 has no room; the call of the other one is well.
            const std::size_t capacity = self.rank == 0 ? 3 : count;
            const pithResult_t result = pithAllReduceCompressedSparse(
                send.data(), indices.data(), values.data(), capacity, &n, count, pithFloat32,
                pithSum, compressor, comm, nullptr);
            if (self.rank == 0) {
              fails(result, pithInvalidArgument,
                    {"pithAllReduceCompressedSparse: capacity is 3", std::to_string(n)});
            } else {
              ok(result);
            }
            ensure(n > 3 && indices[0] < indices[1] && indices[1] < indices[2], "no first pairs");
            ensure(stats_of(compressor).calls == 1, "the call does not count");
            ok(pithAllReduceCompressedSparse(send.data(), indices.data(), values.data(), count, &n,
                                             count, pithFloat32, pithSum, compressor, comm,
                                             nullptr));
          }) == "");
  }
}

// An error of this rank alone revokes nothing, so nothing but the call's own end lets it return.
TEST_CASE("too little room for the pairs in a group", "[compress]") {
  CHECK(run(2, threads(), [](Rank& self) {
          constexpr std::size_t count = 1000;
          const Comm comm(self.join());
          const Compressor compressor("topk:density=0.1,bypass=never");
          const std::vector<float> send = gradient(self.rank, 0, count);
          std::vector<float> dense(100'000);
          ok(pithAllReduce(dense.data(), dense.data(), dense.size(), pithFloat32, pithSum, comm,
                           nullptr));
          std::vector<std::uint64_t> indices(count);
          std::vector<float> values(count);
          std::size_t n = 0;
          ok(pithGroupStart());
          ok(pithAllReduceCompressedSparse(send.data(), indices.data(), values.data(), 3, &n, count,
                                           pithFloat32, pithSum, compressor, comm, nullptr));
          fails(pithGroupEnd(), pithInvalidArgument,
                {"pithAllReduceCompressedSparse: capacity is 3"});
          ok(pithBarrier(comm, nullptr));
        }) == "");
}

TEST_CASE("without feedback nothing is kept", "[compress]") {
  for (const char* spec :
       {"topk:density=0.1,feedback=0,bypass=never", "topk:density=0.9,feedback=0"}) {
    INFO(spec);
    CHECK(run(2, threads(), [&](Rank& self) {
            constexpr std::size_t count = 1000;
            const Comm comm(self.join());
            const Compressor compressor(spec);
            const Compressor fresh(spec);
            std::vector<float> recv(count);
            std::vector<float> other(count);
            ok(compressed_sum(gradient(self.rank, 0, count), recv, compressor, comm));
            ensure(residual_of(compressor, count) == std::vector<float>(count), "a residual");
            ensure(stats_of(compressor).residual_norm == 0, "a norm");
            ok(compressed_sum(gradient(self.rank, 1, count), recv, compressor, comm));
            ok(compressed_sum(gradient(self.rank, 1, count), other, fresh, comm));
            ensure(same_bits(recv, other), "the first gradient is still seen");
            ok(pithAllReduceCompressed(nullptr, recv.data(), count, pithFloat32, pithSum,
                                       compressor, comm, nullptr));
            ensure(recv == std::vector<float>(count), "no gradient, but a result");
          }) == "");
  }
}
