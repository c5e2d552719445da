// Compressed calls that fail: the residual holds what was not delivered, survivors go on, and
// nothing is lost.

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>

#include "catch.hpp"
#include "compressed.hpp"
#include "tests/sanitized.hpp"

using namespace ranks;
using pith::test::is_due;

namespace {

Setup processes(const char* transport) {
  Setup setup;
  setup.transport = transport;
  setup.may_be_killed = true;
  setup.limit_s = 40;
  return setup;
}

// Those that lose nothing, whatever their lists travel on, and the one whose rounding is known. Of
// gtopk rank 1, which dies, is a leaf of the tree: it drops nothing of the others. Not `efsign`:
// what coding took from sums dies with their owner.
std::vector<std::string> killed_specs() {
  std::vector<std::string> specs = conserving_specs();
  for (const char* spec : {"topk:density=0.05,exchange=ring,bypass=never",
                           "topk:density=0.05,exchange=split,bypass=never",
                           "topk:density=0.05,exchange=recursive-doubling,bypass=never",
                           "exdyna:density=0.05,rule=released,bypass=never", "bf16"}) {
    specs.emplace_back(spec);
  }
  return specs;
}

std::vector<std::string> failing_specs() {
  std::vector<std::string> specs = conserving_specs();
  specs.emplace_back("bf16");
  specs.emplace_back("efsign");
  specs.emplace_back("onebit");
  specs.emplace_back("signum");
  specs.emplace_back("bounded:feedback=1");
  specs.emplace_back("powersgd:rank=1");
  specs.emplace_back("arc-topk:density=0.1,bypass=never");
  specs.emplace_back("atomo:rank=1");
  specs.emplace_back("topk:density=0.1,feedback=0,bypass=never");
  return specs;
}

// The victim's gradients are zero where those of the others are not: its part of a sum is known.
std::vector<float> half_gradient(bool odd, int rank, int step, std::size_t count) {
  std::vector<float> out = gradient(rank, step, count);
  for (std::size_t i = odd ? 0 : 1; i < count; i += 2) out[i] = 0;
  return out;
}

void ensure_holds(pithCompressor_t compressor, const std::vector<float>& expected,
                  Where where = Where::current()) {
  const std::vector<float> kept = residual_of(compressor, expected.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    ensure(std::fabs(kept[i] - expected[i]) < 1e-6f, "the residual lacks something", where);
  }
}

template <class T>
void add(std::vector<T>& sums, const std::vector<T>& values) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

void dies_soon(double seconds) {
  std::thread([seconds] {
    sleep_s(seconds);
    raise(SIGKILL);
  }).detach();
}

// Calls until one fails. What was given, and what every call gave.
struct Run {
  std::vector<double> fed;
  std::vector<std::vector<float>> received;
};

enum class Kind { blocking, grouped, background };

pithResult_t call(Kind kind, const std::vector<float>& send, std::vector<float>& recv,
                  pithCompressor_t compressor, pithComm_t comm) {
  if (kind == Kind::blocking) return compressed_sum(send, recv, compressor, comm);
  ok(pithGroupStart());
  ok(compressed_sum(send, recv, compressor, comm));
  if (kind == Kind::grouped) return pithGroupEnd();
  pithRequest_t request = nullptr;
  ok(pithGroupEndAsync(&request));
  return pithWait(request);
}

Run run_until_error(Kind kind, bool odd, int rank, std::size_t count, pithCompressor_t compressor,
                    pithComm_t comm) {
  Run run{std::vector<double>(count), {}};
  for (int step = 0;; ++step) {
    const std::vector<float> send = half_gradient(odd, rank, step, count);
    std::vector<float> recv(count);
    add_to(run.fed, send);
    const pithResult_t result = call(kind, send, recv, compressor, comm);
    if (result != pithSuccess) {
      fails(result, pithRemoteError, {"rank "});
      return run;
    }
    run.received.push_back(std::move(recv));
  }
}

// Half a unit in the last place of bfloat16, at most.
void add_roundings(std::vector<double>& lost, const std::vector<float>& values) {
  for (std::size_t i = 0; i < lost.size(); ++i) lost[i] += std::fabs(double(values[i])) / 256;
}

// Each rank's values as well as their sum; nothing of that is kept.
bool all_are_rounded(const std::string& spec) { return spec == "bf16"; }

// What the rounding of sums lost is their owner's, who may have died. Residuals of values that are
// not summed in 16 bits lack nothing.
std::vector<double> lost_at_most(const std::string& spec, const Run& run, std::size_t completed) {
  std::vector<double> lost(run.fed.size());
  const bool is_rounded =
      all_are_rounded(spec) || (spec.find("topk:") != 0 && spec.find("values=bf16") != spec.npos);
  for (std::size_t step = 0; is_rounded && step < completed; ++step) {
    add_roundings(lost, run.received[step]);
  }
  return lost;
}

// A survivor's own.
std::vector<double> own_roundings(int rank, std::size_t count, std::size_t completed) {
  std::vector<double> lost(count);
  for (std::size_t step = 0; step < completed; ++step) {
    add_roundings(lost, half_gradient(false, rank, static_cast<int>(step), count));
  }
  return lost;
}

// Moves what is left over into `kept`, as far as it may be lost.
std::vector<double> with_losses(std::vector<double> kept, const std::vector<double>& fed,
                                const std::vector<double>& received,
                                const std::vector<double>& lost) {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    kept[i] += std::clamp(fed[i] - kept[i] - received[i], -lost[i], lost[i]);
  }
  return kept;
}

// Even elements only: those of the survivors.
std::vector<double> even(std::vector<double> values) {
  for (std::size_t i = 1; i < values.size(); i += 2) values[i] = 0;
  return values;
}

// Who dies, after what time, and the elements of which nothing may be lost.
struct Death {
  int victim = 1;
  double after_s = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Of the survivors, where they may lose nothing.
std::vector<double> theirs(std::vector<double> values, const Death& death) {
  values = even(std::move(values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i < death.begin || i >= death.end) values[i] = 0;
  }
  return values;
}

void survive(Rank& self, Kind kind, const std::string& spec, std::size_t count,
             const Death& death) {
  const Comm comm(self.join());
  const Compressor compressor(spec);
  const bool dies = self.rank == death.victim;
  self.meet();
  if (dies) dies_soon(death.after_s);
  const Run run = run_until_error(kind, dies, self.rank, count, compressor, comm);
  // Some try again first; the communicator is revoked.
  std::vector<float> recv(count);
  if (self.rank == 0) {
    fails(compressed_sum(std::vector<float>(count), recv, compressor, comm), pithRemoteError,
          {"rank "});
    fails(pithAllReduceCompressed(nullptr, recv.data(), count, pithFloat32, pithSum, compressor,
                                  comm, nullptr),
          pithRemoteError, {"rank "});
  }
  pithComm_t made = nullptr;
  ok(pithCommShrink(comm, nullptr, 0, &made, nullptr, PITH_SHRINK_DEFAULT));
  const Comm smaller(made);
  std::uint64_t completed = 0;
  ok(pithCommGetLastCompleted(smaller, &completed));
  ensure(completed <= run.received.size(), "more was completed by all than by this rank");
  std::vector<double> received(count);
  for (std::size_t i = 0; i < completed; ++i) add_to(received, run.received[i]);
  std::vector<double> lost = lost_at_most(spec, run, completed);
  if (all_are_rounded(spec)) {
    add(lost, sum_over(own_roundings(self.rank, count, completed), smaller));
  }
  const std::vector<double> fed = sum_over(run.fed, smaller);
  std::vector<double> kept(count);
  const std::vector<float> residual = residual_of(compressor, count);
  add_to(kept, residual);
  kept = with_losses(sum_over(kept, smaller), fed, received, lost);
  ensure_conserved(theirs(fed, death), theirs(kept, death), theirs(received, death));
  ensure(stats_of(compressor).calls == completed, "another step than what all completed");

  ok(pithAllReduceCompressed(nullptr, recv.data(), count, pithFloat32, pithSum, compressor, smaller,
                             nullptr));
  add_to(received, recv);
  if (all_are_rounded(spec)) {
    std::vector<double> own(count);
    add_roundings(own, residual);
    add(lost, sum_over(own, smaller));
    add_roundings(lost, recv);
  }
  const bool by_host = spec.find("hierarchy=host") != spec.npos;
  ensure(!by_host || stats_of(compressor).bypassed == 0, "the survivors are on one host");
  std::fill(kept.begin(), kept.end(), 0);
  add_to(kept, residual_of(compressor, count));
  kept = with_losses(sum_over(kept, smaller), fed, received, lost);
  ensure_conserved(theirs(fed, death), theirs(kept, death), theirs(received, death));
}

// The list of specs is long.
bool has_one_kind(const std::string& spec) {
  for (const char* word : {"ar-topk", "ok-topk", "gtopk", "deft", "exchange=", "rule="}) {
    if (spec.find(word) != spec.npos) return true;
  }
  return spec == "bf16";
}

}  // namespace

TEST_CASE("a rank is killed: survivors shrink, retry, and nothing is lost", "[compress]") {
  int turn = 0;
  int of_one_kind = 0;
  for (const char* transport : {"shm", "tcp"}) {
    // Of two specs one in parcels and rounds; over the next link the other.
    bool in_pieces = transport == std::string_view("shm");
    for (const std::string& spec : killed_specs()) {
      Setup setup = processes(transport);
      if (in_pieces) setup.environment.emplace_back("PITH_CHUNK", "1024");
      const std::size_t count = in_pieces ? 200'000 : 30'000;
      in_pieces = !in_pieces;
      const int only = has_one_kind(spec) ? of_one_kind++ % 3 : -1;
      for (const Kind kind : {Kind::blocking, Kind::grouped, Kind::background}) {
        if (only >= 0 && static_cast<int>(kind) != only) continue;
        const double after_s = 0.003 * (turn++ % 11);
        if (only < 0 && !is_due({static_cast<int>(kind), in_pieces})) continue;
        INFO(transport << ", " << spec << ", count " << count << ", after " << after_s << " s");
        const Death death{.after_s = after_s, .end = count};
        CHECK(run(4, setup, [&](Rank& self) { survive(self, kind, spec, count, death); }) == "");
      }
    }
  }
}

// Ranks 0, 1 and 2 on one host, 3 and 4 on another, by their addresses. Each host's owner of a
// slice has what is left over of all its ranks there, so that it takes that along when it dies;
// rank 2 owns none.
TEST_CASE("by host, what a killed rank did not keep for its host is not lost", "[compress]") {
  constexpr std::size_t count = 30'000;
  const std::array<Death, 3> deaths = {Death{.victim = 2, .end = count},
                                       Death{.victim = 1, .end = count / 2},
                                       Death{.victim = 3, .begin = count / 2, .end = count}};
  Setup setup = processes("tcp");
  setup.environment.emplace_back("PITH_ORDER", "rank");
  int turn = 0;
  for (const char* scheme :
       {"topk:density=0.1", "topk:density=0.1,exchange=split", "topk:density=0.05,values=f16",
        "ar-topk:density=0.05", "ar-topk:density=0.05,election=variance,values=bf16",
        "exdyna:density=0.05", "micro:density=0.05", "deft:density=0.05"}) {
    for (Death death : deaths) {
      const std::string spec = std::string(scheme) + ",hierarchy=host,bypass=never";
      const auto kind = static_cast<Kind>(turn % 3);
      death.after_s = 0.003 * (turn++ % 11);
      INFO(spec << ", rank " << death.victim << " after " << death.after_s << " s");
      CHECK(run(5, setup, [&](Rank& self) {
              setenv("PITH_HOST", self.rank < 3 ? "127.0.0.1" : "127.0.0.2", 1);
              survive(self, kind, spec, count, death);
            }) == "");
    }
  }
}

TEST_CASE("a call on a revoked communicator keeps its gradient", "[compress]") {
  for (const std::string& spec : failing_specs()) {
    for (const int size : {1, 2}) {
      INFO(spec << ", " << size << " ranks");
      CHECK(run(size, {}, [&](Rank& self) {
              constexpr std::size_t count = 3000;
              const Comm comm(self.join());
              const Compressor compressor(spec);
              std::vector<float> recv(count);
              ok(compressed_sum(gradient(self.rank, 0, count), recv, compressor, comm));
              std::vector<float> expected = residual_of(compressor, count);
              self.meet();
              if (self.rank == size - 1) {
                // Any failed rank would do; shrinking with PITH_SHRINK_ABORT revokes.
                pithComm_t unused = nullptr;
                ok(pithCommShrink(comm, nullptr, 0, &unused, nullptr, PITH_SHRINK_ABORT));
                ok(pithCommDestroy(unused));
              } else {
                pithResult_t state = pithSuccess;
                wait_until([&] {
                  ok(pithCommGetAsyncError(comm, &state));
                  return state != pithSuccess;
                });
                pithComm_t unused = nullptr;
                ok(pithCommShrink(comm, nullptr, 0, &unused, nullptr, PITH_SHRINK_DEFAULT));
                ok(pithCommDestroy(unused));
              }
              int step = 1;
              for (const Kind kind : {Kind::blocking, Kind::grouped, Kind::background}) {
                const std::vector<float> send = gradient(self.rank, step++, count);
                fails(call(kind, send, recv, compressor, comm), pithRemoteError, {"rank "});
                add(expected, send);
                ensure_holds(compressor, expected);
              }
              ensure(stats_of(compressor).calls == 1, "failed calls count");
              self.meet();
            }) == "");
    }
  }
}

TEST_CASE("an abort from another thread", "[compress]") {
  for (const Setup& setup : every_link()) {
    for (const std::string& spec : failing_specs()) {
      INFO(name_of(setup) << ", " << spec);
      CHECK(run(2, setup, [&](Rank& self) {
              constexpr std::size_t count = 50'000;
              pithComm_t comm = self.join();
              const Compressor compressor(spec);
              std::vector<float> recv(count);
              ok(compressed_sum(gradient(self.rank, 0, count), recv, compressor, comm));
              self.meet();
              if (self.rank == 1) {
                self.meet();
                ok(pithCommDestroy(comm));
                return;
              }
              std::vector<float> expected = residual_of(compressor, count);
              const std::vector<float> send = gradient(self.rank, 1, count);
              std::thread aborter([&] {
                sleep_s(0.05);
                pithCommAbort(comm);
              });
              const pithResult_t result = compressed_sum(send, recv, compressor, comm);
              aborter.join();
              self.meet();
              fails(result, pithRemoteError, {"rank 0"});
              add(expected, send);
              ensure_holds(compressor, expected);
            }) == "");
    }
  }
}

TEST_CASE("ranks disagree on a compressor", "[compress]") {
  struct Case {
    const char* ours;
    const char* theirs;
    float scale;  // of rank 1
    std::size_t count;
    std::vector<std::string_view> words;
  };
  const std::vector<Case> cases = {
      {"topk:density=0.1",
       "topk:density=0.2",
       1,
       500,
       {"density=0.1", "density=0.2", ": density=0.1 against density=0.2"}},
      {"none", "bf16", 1, 500, {"none", "bf16", ": compressor none against bf16"}},
      {"topk:density=0.1",
       "topk:density=0.1,seed=4",
       1,
       500,
       {"seed=0", "seed=4", ": seed=0 against seed=4"}},
      {"none", "none", 2, 500, {"scale 2", ": scale 1 against 2"}},
      {"none", "none", 1, 501, {"of 500", "of 501", ": count 500 against 501"}},
  };
  for (const Case& one : cases) {
    INFO(one.ours << " and " << one.theirs);
    CHECK(run(2, {}, [&](Rank& self) {
            const Comm comm(self.join());
            const Compressor compressor(self.rank == 0 ? one.ours : one.theirs);
            if (self.rank == 1) ok(pithCompressorScale(compressor, one.scale));
            const std::size_t count = self.rank == 1 ? one.count : 500;
            ok(pithBarrier(comm, nullptr));
            self.meet();
            const std::vector<float> send = gradient(self.rank, 0, count);
            std::vector<float> recv(count);
            pithResult_t result = compressed_sum(send, recv, compressor, comm);
            wait_until([&] {
              if (result != pithSuccess) return true;
              ok(pithCommGetAsyncError(comm, &result));
              if (result != pithSuccess) pithBarrier(comm, nullptr);
              return result != pithSuccess;
            });
            fails(result, pithInvalidUsage, {"rank 0", "rank 1", "compressed allreduce"});
            const std::string text = pithGetLastError(nullptr);
            for (const std::string_view word : one.words) {
              ensure(text.find(word) != std::string::npos, text);
            }
            ensure(text.find("bypass=") == std::string::npos, text + " says what does not differ");
            ensure_holds(compressor, send);
            self.meet();
          }) == "");
  }
}
