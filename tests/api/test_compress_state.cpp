// Compressors between calls: what can be asked, refused, saved, loaded and bound.
#include <limits>

#include "catch.hpp"
#include "compressed.hpp"

using namespace ranks;

namespace {

constexpr std::size_t count = 2000;

Setup threads() {
  Setup setup;
  setup.way = Way::all;
  setup.transport = "local";
  return setup;
}

Setup processes() {
  Setup setup;
  setup.transport = "shm";
  return setup;
}

// One step of every rank with its own gradient.
std::vector<float> step(Rank& self, int number, pithCompressor_t compressor, pithComm_t comm) {
  std::vector<float> recv(count);
  ok(compressed_sum(gradient(self.rank, number, count), recv, compressor, comm));
  return recv;
}

}  // namespace

TEST_CASE("refused specs list what is known", "[compress]") {
  CHECK(run(1, alone(), [](Rank&) {
          pithCompressor_t compressor = nullptr;
          const auto refused = [&](const char* spec,
                                   std::initializer_list<std::string_view> words) {
            fails(pithCompressorCreate(&compressor, spec), pithInvalidArgument, words);
            ensure(compressor == nullptr, "a compressor all the same");
          };
          refused("topj", {"topj", "none", "bf16", "topk", "ar-topk", "exdyna"});
          refused("topk:densty=1", {"densty", "density", "values", "bypass"});
          refused("topk:density=0", {"density", "\"0\""});
          refused("topk:density=0.1,", {"key=value"});
          refused("topk:values=f64", {"f64", "f32", "bf16", "f16"});
          refused(nullptr, {"spec is NULL"});
          fails(pithCompressorCreate(nullptr, "none"), pithInvalidArgument, {"compressor is NULL"});
          ok(pithCompressorDestroy(nullptr));
        }) == "");
}

TEST_CASE("a compressor that was destroyed is refused", "[compress]") {
  CHECK(run(1, alone(), [](Rank& self) {
          constexpr auto bad = pithInvalidArgument;
          const Comm comm(self.join());
          pithCompressor_t gone = nullptr;
          ok(pithCompressorCreate(&gone, "topk:density=0.1"));
          ok(pithCompressorDestroy(gone));
          fails(pithCompressorDestroy(gone), bad,
                {"pithCompressorDestroy: compressor was destroyed"});
          const Compressor another("topk:density=0.1");
          ensure(another != gone, "a new one in the place of one that is gone");
          fails(pithCompressorReset(gone), bad, {"pithCompressorReset: compressor was destroyed"});
          std::vector<float> values(10);
          fails(compressed_sum(values, values, gone, comm), bad,
                {"pithAllReduceCompressed: compressor was destroyed"});
          ok(compressed_sum(values, values, another, comm));
        }) == "");
}

TEST_CASE("refused calls change nothing", "[compress]") {
  CHECK(run(1, threads(), [](Rank& self) {
          const Comm comm(self.join());
          const Compressor compressor("topk:density=0.1,bypass=never");
          const Compressor untouched("topk:density=0.1,bypass=never");
          std::vector<float> recv(count);
          step(self, 0, compressor, comm);
          step(self, 0, untouched, comm);
          const std::vector<char> before = saved(compressor);
          const std::vector<float> send = gradient(0, 1, count);
          const auto call = [&](std::size_t n, pithDataType_t type, pithRedOp_t op, void* out,
                                void* stream) {
            return pithAllReduceCompressed(send.data(), out, n, type, op, compressor, comm, stream);
          };
          void* out = recv.data();
          fails(call(count - 1, pithFloat32, pithSum, out, nullptr), pithInvalidArgument,
                {"count is 1999", "2000"});
          fails(call(count, pithFloat16, pithSum, out, nullptr), pithInvalidArgument, {"half"});
          fails(call(count, pithInt32, pithSum, out, nullptr), pithInvalidArgument, {"int32"});
          fails(call(count, pithFloat32, pithMax, out, nullptr), pithInvalidArgument,
                {"op is pithMax (2)", "pithSum", "pithAvg"});
          fails(call(count, pithFloat32, pithBand, out, nullptr), pithInvalidArgument,
                {"op is pithBand (5)", "pithSum", "pithAvg"});
          fails(call(count, pithFloat32, pithSum, nullptr, nullptr), pithInvalidArgument,
                {"recv is NULL"});
          fails(call(count, pithFloat32, pithSum, out, out), pithInvalidArgument, {"stream"});
          fails(call(std::size_t{1} << 33, pithFloat32, pithSum, out, nullptr), pithInvalidArgument,
                {"count is"});
          fails(pithAllReduceCompressed(send.data(), out, count, pithFloat32, pithSum, nullptr,
                                        comm, nullptr),
                pithInvalidArgument, {"compressor is NULL"});
          fails(pithAllReduceCompressed(send.data(), out, count, pithFloat32, pithSum, compressor,
                                        nullptr, nullptr),
                pithInvalidArgument, {"comm is NULL"});
          std::size_t n = 0;
          fails(pithAllReduceCompressedSparse(send.data(), nullptr, out, count, &n, count,
                                              pithFloat32, pithSum, compressor, comm, nullptr),
                pithInvalidArgument, {"indices is NULL"});
          fails(pithAllReduceCompressedSparse(send.data(), &n, out, 1, nullptr, count, pithFloat32,
                                              pithSum, compressor, comm, nullptr),
                pithInvalidArgument, {"n is NULL"});
          fails(pithCompressorScale(compressor, 0), pithInvalidArgument, {"factor is 0"});
          fails(pithCompressorScale(compressor, std::numeric_limits<float>::infinity()),
                pithInvalidArgument, {"factor is inf"});
          fails(pithCompressorGetResidual(compressor, recv.data(), 7), pithInvalidArgument,
                {"count is 7", "2000"});
          void* memory = nullptr;
          fails(pithCompressorGetAccumulator(compressor, &memory, 7, pithFloat32),
                pithInvalidArgument, {"count is 7"});
          fails(pithCompressorGetAccumulator(compressor, &memory, count, pithFloat16),
                pithInvalidArgument, {"type is pithFloat16 (6)", "pithFloat32"});
          ensure(saved(compressor) == before, "a refused call changed the state");
          ensure(step(self, 2, compressor, comm) == step(self, 2, untouched, comm),
                 "a refused call changed what comes");
        }) == "");
}

// Before its first call: neither communicator nor count and type.
TEST_CASE("a refused call binds no compressor", "[compress]") {
  CHECK(run(1, threads(), [](Rank& self) {
          const Comm comm(self.join());
          pithComm_t made = nullptr;
          ok(pithCommSplit(comm, 0, 0, &made, nullptr));
          const Comm other(made);
          const Compressor compressor("ar-topk:density=1,bypass=never");
          std::vector<float> recv(count);
          // More pairs than one message has; nobody reads so many elements.
          constexpr std::size_t many = std::size_t{1} << 31;
          const auto call = [&] {
            return pithAllReduceCompressed(nullptr, recv.data(), many, pithFloat32, pithSum,
                                           compressor, comm, nullptr);
          };
          fails(call(), pithInvalidArgument, {"pairs", "in one message"});
          ok(pithGroupStart());
          ok(call());
          fails(pithGroupEnd(), pithInvalidArgument, {"pairs", "in one message"});
          ok(pithAllReduceCompressed(nullptr, recv.data(), count, pithFloat32, pithSum, compressor,
                                     other, nullptr));
        }) == "");
}

TEST_CASE("statistics fit a smaller and a larger struct", "[compress]") {
  CHECK(run(2, threads(), [](Rank& self) {
          const Comm comm(self.join());
          const Compressor compressor("topk:density=0.01,bypass=never");
          step(self, 0, compressor, comm);
          const pithCompressorStats_t all = stats_of(compressor);
          ensure(all.density_target == 0.01 && all.selected_local == 20, "wrong densities");
          ensure(all.selected_union >= 20 && all.selected_union <= 40, "a wrong union");
          ensure(all.density == double(all.selected_union) / count, "a wrong density");
          ensure(all.leader == -1 && all.bypassed == 0 && all.imbalance == 1, "wrong words");
          ensure(all.gain > 0 && all.gain < 1 && all.threshold > 0, "a wrong gain");
          ensure(all.bytes_sent > 0 && all.bytes_received > 0, "no bytes");
          ensure(std::string(all.algorithm).find("topk") == 0, all.algorithm);
          double squares = 0;
          for (const float value : residual_of(compressor, count)) {
            squares += double(value) * double(value);
          }
          std::uint64_t bits = 0;
          std::memcpy(&bits, &all.predicted_seconds, sizeof bits);
          ensure(all.predicted_seconds > 0 && all.predicted_seconds < 0.1, "a wrong prediction");
          self.agree(bits);
          ensure(std::fabs(all.residual_norm - std::sqrt(squares)) < 1e-6, "a wrong norm");

          struct {
            pithCompressorStats_t stats;
            char behind[64];
          } larger;
          std::memset(&larger, 0x55, sizeof larger);
          larger.stats.size = sizeof larger;
          ok(pithCompressorGetStats(compressor, &larger.stats));
          ensure(larger.stats.size == sizeof larger && larger.stats.calls == 1, "a wrong struct");
          ensure(larger.behind[0] == 0x55, "written behind what is known");
          larger.stats.calls = 77;
          larger.stats.count = 77;
          larger.stats.size = offsetof(pithCompressorStats_t, count);
          ok(pithCompressorGetStats(compressor, &larger.stats));
          ensure(larger.stats.calls == 1 && larger.stats.count == 77, "more than fits");
          larger.stats.size = 0;
          fails(pithCompressorGetStats(compressor, &larger.stats), pithInvalidArgument,
                {"stats->size is 0"});
          fails(pithCompressorGetStats(compressor, nullptr), pithInvalidArgument,
                {"stats is NULL"});
        }) == "");
}

// With score=raw a gradient in the accumulator counts with the residual: others may lead.
TEST_CASE("the accumulator as send buffer", "[compress]") {
  for (const std::string& spec : conserving_specs()) {
    if (spec.find("score=raw") != std::string::npos) continue;
    INFO(spec);
    CHECK(run(2, threads(), [&](Rank& self) {
            const Comm comm(self.join());
            const Compressor apart(spec);
            const Compressor in_place(spec);
            std::vector<float> unused(count);
            fails(pithCompressorGetResidual(in_place, unused.data(), count), pithInvalidUsage,
                  {"first call"});
            void* memory = nullptr;
            ok(pithCompressorGetAccumulator(in_place, &memory, count, pithFloat32));
            auto* accumulator = static_cast<float*>(memory);
            for (int number = 0; number < 4; ++number) {
              const std::vector<float> send = gradient(self.rank, number, count);
              for (std::size_t i = 0; i < count; ++i) accumulator[i] += send[i];
              std::vector<float> recv(count);
              ok(pithAllReduceCompressed(memory, recv.data(), count, pithFloat32, pithSum, in_place,
                                         comm, nullptr));
              ensure(same_bits(recv, step(self, number, apart, comm)), "another result");
              ensure(residual_of(in_place, count) == residual_of(apart, count), "another residual");
              const double gain = stats_of(apart).gain;
              ensure(gain > 0 && gain < 1 + 1e-9, "a gain of " + std::to_string(gain));
              const double there = stats_of(in_place).gain;
              ensure(std::fabs(there - gain) < 1e-6, "in place " + std::to_string(there));
              void* again = nullptr;
              ok(pithCompressorGetAccumulator(in_place, &again, count, pithFloat32));
              ensure(again == memory, "the accumulator moved");
            }
            for (float* const recv :
                 {accumulator - count + 1, accumulator + 5, accumulator + count - 1}) {
              fails(pithAllReduceCompressed(nullptr, recv, count, pithFloat32, pithSum, in_place,
                                            comm, nullptr),
                    pithInvalidArgument, {"recv", "accumulator"});
            }
          }) == "");
  }
}

TEST_CASE("a compressor that is reset is new", "[compress]") {
  for (const std::string& spec : conserving_specs()) {
    CHECK(run(2, threads(), [&](Rank& self) {
            const Comm comm(self.join());
            const Compressor used(spec);
            const Compressor fresh(spec);
            for (int number = 0; number < 3; ++number) step(self, number, used, comm);
            ok(pithCompressorScale(used, 3));
            ok(pithCompressorReset(used));
            ensure(stats_of(used).calls == 0 && stats_of(used).residual_norm == 0, "not new");
            ensure(saved(used) == saved(fresh), "another state");
            ensure(step(self, 9, used, comm) == step(self, 9, fresh, comm), "another result");
          }) == "");
  }
}

TEST_CASE("saved and loaded, a compressor goes on with the same bits", "[compress]") {
  std::vector<std::string> specs = conserving_specs();
  for (const char* rule : {"released", "intended"}) {
    specs.push_back(std::string("exdyna:density=0.1,bypass=never,rule=") + rule);
    specs.push_back(std::string("micro:density=0.1,bypass=never,rule=") + rule);
  }
  for (const std::string& spec : specs) {
    INFO(spec);
    CHECK(run(3, processes(), [&](Rank& self) {
            const Comm comm(self.join());
            const Compressor whole(spec);
            for (int number = 0; number < 4; ++number) step(self, number, whole, comm);
            ok(pithCompressorScale(whole, 0.25f));
            const std::vector<char> bytes = saved(whole);
            const Compressor resumed(spec);
            ok(pithCompressorLoad(resumed, bytes.data(), bytes.size()));
            ensure(saved(resumed) == bytes, "saved again it is something else");
            ensure(stats_of(resumed).calls == 4, "another step");
            for (int number = 4; number < 8; ++number) {
              const std::vector<float> expected = step(self, number, whole, comm);
              ensure(same_bits(step(self, number, resumed, comm), expected), "other bits");
              ensure(same_bits(residual_of(resumed, count), residual_of(whole, count)),
                     "another residual");
            }
          }) == "");
  }
}

TEST_CASE("fewer ranks load the states of more", "[compress]") {
  for (const std::string& spec : conserving_specs()) {
    INFO(spec);
    CHECK(run(4, threads(), [&](Rank& self) {
            static std::array<std::vector<char>, 4> states;
            const Comm comm(self.join());
            const Compressor before(spec);
            step(self, 0, before, comm);
            step(self, 1, before, comm);
            states[static_cast<std::size_t>(self.rank)] = saved(before);
            std::vector<double> kept(count);
            add_to(kept, residual_of(before, count));
            kept = sum_over(kept, comm);
            pithComm_t half = nullptr;
            ok(pithCommSplit(comm, self.rank < 2 ? 0 : PITH_SPLIT_NOCOLOR, 0, &half, nullptr));
            self.meet();
            if (self.rank >= 2) return self.meet();
            const Comm smaller(half);
            const Compressor after(spec);
            for (int of = self.rank; of < 4; of += 2) {
              const std::vector<char>& state = states[static_cast<std::size_t>(of)];
              ok(pithCompressorLoad(after, state.data(), state.size()));
            }
            std::vector<double> loaded(count);
            add_to(loaded, residual_of(after, count));
            ensure_conserved(kept, sum_over(loaded, smaller), std::vector<double>(count));
            ensure(stats_of(after).calls == 2, "another step");
            step(self, 2, after, smaller);
            self.meet();
          }) == "");
  }
}

TEST_CASE("damaged and foreign states are refused", "[compress]") {
  CHECK(
      run(1, threads(), [](Rank& self) {
        const Comm comm(self.join());
        const char* spec = "topk:density=0.1,bypass=never";
        const Compressor source(spec);
        step(self, 0, source, comm);
        const std::vector<char> good = saved(source);
        const Compressor target(spec);
        step(self, 1, target, comm);
        const std::vector<char> before = saved(target);
        const auto refused = [&](const std::vector<char>& bytes, const char* word) {
          fails(pithCompressorLoad(target, bytes.data(), bytes.size()), pithInvalidArgument,
                {word});
          ensure(saved(target) == before, "a refused state changed something");
        };
        for (std::size_t size = 1; size < good.size(); size += 1 + size / 7) {
          refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}, "saved state");
        }
        for (std::size_t at = 0; at < good.size(); at += 1 + at / 16) {
          std::vector<char> bad = good;
          bad[at] = static_cast<char>(bad[at] ^ 0x40);
          refused(bad, "saved state");
        }
        std::vector<char> longer = good;
        longer.push_back(0);
        refused(longer, "damaged");
        refused(std::vector<char>(500, 'x'), "pithCompressorSave");
        const Compressor other("topk:density=0.2,bypass=never");
        refused(saved(other), "density=0.2");
        const Compressor longer_one(spec);
        std::vector<float> recv(count + 1);
        ok(compressed_sum(std::vector<float>(count + 1), recv, longer_one, comm));
        refused(saved(longer_one), "2001");
        fails(pithCompressorLoad(target, nullptr, 5), pithInvalidArgument, {"buffer is NULL"});
        std::size_t bytes = 10;
        std::vector<char> small(10);
        fails(pithCompressorSave(target, small.data(), &bytes), pithInvalidArgument,
              {"*bytes is 10"});
        // A state of a compressor that has never called adds nothing.
        const Compressor unused(spec);
        const std::vector<char> nothing = saved(unused);
        ok(pithCompressorLoad(target, nothing.data(), nothing.size()));
        ensure(saved(target) == before, "it added something");
      }) == "");
}

TEST_CASE("a compressor is bound to the communicator of its first call", "[compress]") {
  CHECK(run(2, threads(), [](Rank& self) {
          const Comm first(self.join());
          pithComm_t made = nullptr;
          ok(pithCommSplit(first, 0, 0, &made, nullptr));
          const Comm second(made);
          const Compressor compressor("topk:density=0.1,bypass=never");
          step(self, 0, compressor, first);
          std::vector<float> recv(count);
          const std::vector<char> before = saved(compressor);
          fails(compressed_sum(gradient(self.rank, 1, count), recv, compressor, second),
                pithInvalidUsage, {"bound to another communicator"});
          ensure(saved(compressor) == before, "the refused call changed something");
          ok(pithCompressorReset(compressor));
          step(self, 1, compressor, second);
          // Destroyed, it holds nothing any more.
          pithComm_t third = nullptr;
          ok(pithCommSplit(first, 0, 0, &third, nullptr));
          const Compressor other("none");
          step(self, 0, other, third);
          self.meet();
          ok(pithCommDestroy(third));
          step(self, 1, other, second);
          // Shrunk without a failure, neither.
          const Compressor moved("topk:density=0.1,bypass=never");
          step(self, 0, moved, first);
          const std::vector<float> kept = residual_of(moved, count);
          pithComm_t shrunk = nullptr;
          ok(pithCommShrink(first, nullptr, 0, &shrunk, nullptr, PITH_SHRINK_DEFAULT));
          const Comm next(shrunk);
          ensure(same_bits(residual_of(moved, count), kept), "the shrink changed the residual");
          step(self, 1, moved, next);
          self.meet();
        }) == "");
}

TEST_CASE("matrices are stated before the first call, alike on all ranks", "[compress]") {
  constexpr auto bad = pithInvalidArgument;
  const char* spec = GENERATE("powersgd:rank=2", "atomo:rank=1,side=16",
                              "arc-topk:density=0.1,sketch=2,bypass=never");
  CHECK(run(2, threads(), [spec](Rank& self) {
          const Comm comm(self.join());
          const std::size_t rows[] = {40, 20, 1};
          const std::size_t columns[] = {30, 39, 20};
          const Compressor compressor(spec);
          fails(pithCompressorSetShape(compressor, nullptr, columns, 3), bad, {"rows is NULL"});
          fails(pithCompressorSetShape(compressor, rows, nullptr, 3), bad, {"columns is NULL"});
          const std::size_t large[] = {std::size_t{1} << 40, std::size_t{1} << 40};
          fails(
              pithCompressorSetShape(compressor, large, large, 1), bad,
              {"pithCompressorSetShape: matrix 0 is 1099511627776 x 1099511627776", "4294967295"});
          ok(pithCompressorSetShape(compressor, rows, columns, 2));
          std::vector<float> recv(count);
          fails(compressed_sum(gradient(self.rank, 0, count), recv, compressor, comm), bad,
                {"count is 2000, expected 1980"});
          ok(pithCompressorSetShape(compressor, rows, columns, 3));
          step(self, 0, compressor, comm);
          ok(pithCompressorSetShape(compressor, rows, columns, 3));
          fails(pithCompressorSetShape(compressor, columns, rows, 3), pithInvalidUsage,
                {"has been used with other matrices"});
          fails(pithCompressorSetShape(compressor, rows, columns, 2), bad, {"1980", "2000"});
          // A state goes on in a compressor of the same matrices, or of none yet.
          const std::vector<char> state = saved(compressor);
          const Compressor same(spec);
          ok(pithCompressorSetShape(same, rows, columns, 3));
          ok(pithCompressorLoad(same, state.data(), state.size()));
          const Compressor other(spec);
          ok(pithCompressorSetShape(other, columns, rows, 3));
          fails(pithCompressorLoad(other, state.data(), state.size()), bad, {"other matrices"});
          const Compressor unknown(spec);
          ok(pithCompressorLoad(unknown, state.data(), state.size()));
          const std::vector<float> expected = step(self, 1, compressor, comm);
          ensure(same_bits(step(self, 1, same, comm), expected), "another result");
          ensure(same_bits(step(self, 1, unknown, comm), expected), "another result");
          // Matrices that are stated and not used yet survive a state of none.
          const Compressor fresh(spec);
          const std::vector<char> none = saved(fresh);
          const Compressor stated(spec);
          ok(pithCompressorSetShape(stated, rows, columns, 3));
          const std::vector<char> waiting = saved(stated);
          ok(pithCompressorLoad(stated, none.data(), none.size()));
          ok(pithCompressorLoad(fresh, waiting.data(), waiting.size()));
          ensure(same_bits(step(self, 0, stated, comm), step(self, 0, fresh, comm)),
                 "another result");
          // Other schemes take no notice.
          const Compressor topk("topk:density=0.1");
          ok(pithCompressorSetShape(topk, rows, columns, 2));
          step(self, 0, topk, comm);
        }) == "");
  CHECK(
      run(2, threads(), [](Rank& self) {
        const Comm comm(self.join());
        const std::size_t rows[] = {40, 50};
        const Compressor compressor("powersgd");
        const bool first = self.rank == 0;
        ok(pithCompressorSetShape(compressor, first ? rows : rows + 1, first ? rows + 1 : rows, 1));
        std::vector<float> recv(count);
        fails(compressed_sum(gradient(self.rank, 0, count), recv, compressor, comm),
              pithInvalidUsage, {"matrices hash"});
      }) == "");
}
