// Moves of coded values: what they lose, what they refuse, and what ends them.
#include <algorithm>
#include <limits>
#include <thread>

#include "catch.hpp"
#include "compressed.hpp"

using namespace ranks;

namespace {

constexpr std::size_t count = 3000;

pithResult_t gathered(const std::vector<float>& send, std::vector<float>& recv,
                      pithCompressor_t compressor, pithComm_t comm) {
  return pithAllGatherCompressed(send.data(), recv.data(), send.size(), pithFloat32, compressor,
                                 comm, nullptr);
}

float largest_of(const std::vector<float>& values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::fabs(value));
  return most;
}

// Calls until the communicator is revoked, as it is on every rank when one hears of an error.
pithResult_t until_error(pithResult_t result, pithComm_t comm) {
  wait_until([&] {
    if (result != pithSuccess) return true;
    ok(pithCommGetAsyncError(comm, &result));
    if (result != pithSuccess) pithBarrier(comm, nullptr);
    return result != pithSuccess;
  });
  return result;
}

void loses_little(Rank& self, pithComm_t comm, const char* spec, double error) {
  const Compressor compressor(spec);
  const std::vector<float> send = gradient(self.rank, 0, count);
  std::vector<float> recv(count * static_cast<std::size_t>(self.size));
  ok(gathered(send, recv, compressor, comm));
  self.agree(ranks::bits_of(recv));
  for (int r = 0; r < self.size; ++r) {
    const std::vector<float> sent = gradient(r, 0, count);
    const double limit = error * double(largest_of(sent));
    for (std::size_t i = 0; i < count; ++i) {
      const float got = recv[static_cast<std::size_t>(r) * count + i];
      ensure(std::fabs(double(got) - double(sent[i])) <= limit, "a value is far off");
    }
  }
  ensure(stats_of(compressor).calls == 0, "the compressor has counted a call");
}

void stays_nonfinite(Rank& self, pithComm_t comm) {
  const Compressor compressor("int8:block=128");
  std::vector<float> send(1000, 1.0F);
  if (self.rank == 1) send[300] = std::numeric_limits<float>::infinity();
  std::vector<float> recv(1000 * static_cast<std::size_t>(self.size));
  ok(gathered(send, recv, compressor, comm));
  for (std::size_t i = 0; i < recv.size(); ++i) {
    const bool bad = i >= 1000 + 256 && i < 1000 + 384;
    ensure(bad ? std::isnan(recv[i]) : recv[i] == 1, "a block is wrong");
  }
}

void refused(Rank& self, pithComm_t comm) {
  std::vector<float> send(count, 1.0F);
  std::vector<float> recv(count * static_cast<std::size_t>(self.size));
  constexpr auto bad = pithInvalidArgument;
  for (const char* spec : {"none", "topk:density=0.1", "int8:block=256,feedback=1", "sign",
                           "efsign", "powersgd:rank=1", "atomo:rank=1"}) {
    const Compressor compressor(spec);
    fails(gathered(send, recv, compressor, comm), bad,
          {"pithAllGatherCompressed: compressor is ", spec,
           "expected bf16, fp16, int8, fp8, qsgd, terngrad or natural, without feedback=1"});
  }
  const Compressor compressor("int8");
  fails(gathered(send, recv, nullptr, comm), bad, {"compressor is NULL"});
  fails(gathered(send, recv, compressor, nullptr), bad, {"comm is NULL"});
  fails(
      pithAllGatherCompressed(nullptr, recv.data(), count, pithFloat32, compressor, comm, nullptr),
      bad, {"pithAllGatherCompressed: send is NULL"});
  fails(pithReduceScatterCompressed(recv.data(), send.data(), 1, pithInt32, pithSum, compressor,
                                    comm, nullptr),
        bad, {"pithReduceScatterCompressed: type is int32, expected float, half or bfloat16"});
  fails(pithReduceScatterCompressed(recv.data(), send.data(), 1, pithFloat32, pithMax, compressor,
                                    comm, nullptr),
        bad, {"pithReduceScatterCompressed: op is ", "expected pithSum (0) or pithAvg (4)"});
  fails(pithBroadcastCompressed(send.data(), recv.data(), 1, pithFloat32, self.size, compressor,
                                comm, nullptr),
        bad, {"pithBroadcastCompressed: root is "});
  fails(pithAlltoAllCompressed(recv.data(), recv.data(), 1, pithFloat32, compressor, comm, nullptr),
        bad, {"pithAlltoAllCompressed: recv is send"});
  ok(gathered(send, recv, compressor, comm));
}

// A vector of another length and type is the compressor's own affair.
void beside_an_allreduce(Rank& self, pithComm_t comm) {
  const Compressor compressor("int8");
  std::vector<float> recv(500 * static_cast<std::size_t>(self.size));
  std::vector<float> sums(800);
  ok(compressed_sum(gradient(self.rank, 0, 800), sums, compressor, comm));
  ok(gathered(gradient(self.rank, 0, 500), recv, compressor, comm));
  ok(compressed_sum(gradient(self.rank, 1, 800), sums, compressor, comm));
  ensure(stats_of(compressor).calls == 2, "a gather was counted");
}

// Draws differ from call to call, and a communicator's first calls are the same each time.
void repeats(Rank& self) {
  const Compressor compressor("qsgd:seed=3");
  const std::vector<float> send = gradient(self.rank, 0, count);
  std::vector<std::vector<float>> results;
  for (int run = 0; run < 2; ++run) {
    pithUniqueId id = self.id(run);
    pithComm_t made = nullptr;
    ok(pithCommInitRank(&made, self.size, id, self.rank));
    const Comm comm(made);
    for (int call = 0; call < 2; ++call) {
      results.emplace_back(count * static_cast<std::size_t>(self.size));
      ok(gathered(send, results.back(), compressor, comm));
    }
  }
  ensure(same_bits(results[0], results[2]) && same_bits(results[1], results[3]), "another result");
  ensure(!same_bits(results[0], results[1]), "two calls draw the same numbers");
}

}  // namespace

TEST_CASE("coded moves lose what their spec says", "[compress]") {
  CHECK(run(3, {}, [](Rank& self) {
          const Comm comm(self.join());
          const std::pair<const char*, double> all[] = {
              {"int8", 0.5 / 127},  {"fp8", 1.0 / 16},
              {"fp16", 1.0 / 2048}, {"int8:map=dynamic", 1.0 / 142},
              {"bf16", 1.0 / 256},  {"qsgd", 1.0 / 7},
              {"natural", 1.0}};
          for (const auto& [spec, error] : all) {
            part(spec, [&] { loses_little(self, comm, spec, error); });
          }
          stays_nonfinite(self, comm);
          beside_an_allreduce(self, comm);
        }) == "");
  CHECK(run(2, {}, repeats) == "");
}

TEST_CASE("what coded moves refuse", "[compress]") {
  CHECK(run(2, {}, [](Rank& self) {
          const Comm comm(self.join());
          refused(self, comm);
        }) == "");
}

TEST_CASE("ranks disagree on how a move is coded", "[compress]") {
  struct Case {
    const char* ours;
    const char* theirs;  // null: a plain call
    const char* word;
  };
  for (const Case& one :
       {Case{"int8", "fp8", ": compressor int8 against fp8"},
        Case{"int8", "int8:block=512", ": block=256 against block=512"},
        Case{"qsgd", "qsgd:seed=4", ": seed=0 against seed=4"},
        Case{"int8", nullptr, ": collective compressed allgather against allgather"}}) {
    INFO(one.word);
    CHECK(run(2, {}, [&](Rank& self) {
            const Comm comm(self.join());
            const bool plain = self.rank == 1 && !one.theirs;
            const Compressor compressor(self.rank == 0 || plain ? one.ours : one.theirs);
            ok(pithBarrier(comm, nullptr));
            self.meet();
            const std::vector<float> send = gradient(self.rank, 0, count);
            std::vector<float> recv(2 * count);
            pithResult_t result =
                plain ? pithAllGather(send.data(), recv.data(), count, pithFloat32, comm, nullptr)
                      : gathered(send, recv, compressor, comm);
            result = until_error(result, comm);
            fails(result, pithInvalidUsage, {"rank 0", "rank 1", "compressed allgather"});
            const std::string text = pithGetLastError(nullptr);
            ensure(text.find(one.word) != std::string::npos, text);
            self.meet();
          }) == "");
  }
}

TEST_CASE("a rank is killed in coded moves, and the others go on without it", "[compress]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run_in_time(4, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            const Compressor compressor("int8");
            std::vector<float> send(4 * 100'000, 1.0F);
            std::vector<float> recv(100'000);
            pithResult_t result = pithSuccess;
            for (int turn = 0; result == pithSuccess; ++turn) {
              if (self.rank == 2 && turn == 5) self.die();
              result = pithReduceScatterCompressed(send.data(), recv.data(), recv.size(),
                                                   pithFloat32, pithSum, compressor, comm, nullptr);
            }
            fails(result, pithRemoteError, {"rank 2"});
            self.in_time(self.since_death_of(2), 1, "to hear of the death");
            pithComm_t left = nullptr;
            ok(pithCommShrink(comm, nullptr, 0, &left, nullptr, PITH_SHRINK_DEFAULT));
            ok(pithCommDestroy(comm));
            ok(pithReduceScatterCompressed(send.data(), recv.data(), recv.size(), pithFloat32,
                                           pithSum, compressor, left, nullptr));
            ensure(recv[0] == 3 && recv.back() == 3, "a wrong sum after the shrink");
            ok(pithCommDestroy(left));
          }) == "");
  }
}

TEST_CASE("an abort in a coded move", "[compress]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(2, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            const Compressor compressor("fp8");
            std::vector<float> values(500'000, 1.0F);
            ok(pithBroadcastCompressed(values.data(), values.data(), values.size(), pithFloat32, 0,
                                       compressor, comm, nullptr));
            self.meet();
            if (self.rank == 1) {
              self.meet();
              ok(pithCommDestroy(comm));
              return;
            }
            std::vector<float> recv(2 * values.size());
            std::thread aborter([&] {
              sleep_s(0.05);
              pithCommAbort(comm);
            });
            const pithResult_t result = gathered(values, recv, compressor, comm);
            aborter.join();
            self.meet();
            fails(result, pithRemoteError, {"rank 0"});
          }) == "");
  }
}
