// Allgather, reduce-scatter, broadcast and alltoall of coded values, against what the scalar
// kernels make of each rank's values.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "collectives/chooser.hpp"
#include "collectives/coded/coded_move_cost.hpp"
#include "collectives/coded/coded_parcels.hpp"
#include "core/mix.hpp"
#include "kernels/cast.hpp"
#include "kernels/coded_values.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/coded_program.hpp"
#include "tests/collectives/interruption.hpp"

namespace pith::test {

namespace {

// What becomes of a block of this rank's values on the way, in a type.
Memory decoded(const CodedCase& c, int rank, std::size_t block, DType type,
               std::uint32_t call_number) {
  const Coding coding = wire_of(c).coding();
  const Memory input = input_of(c, rank, block * c.count, c.count);
  std::vector<float> values(c.count);
  kernels::cast(reinterpret_cast<std::byte*>(values.data()), DType::f32, input.data(), c.type,
                c.count);
  const std::uint64_t key =
      mix(mix(mix(0, wire_of(c).seed()), call_number), static_cast<std::uint64_t>(rank));
  Memory coded(coding.bytes(c.count));
  kernels::scalar::encode_values({coding,
                                  {1, key, static_cast<std::uint32_t>(block * c.count)},
                                  values.data(),
                                  c.count,
                                  coded.data()});
  Memory out(c.count * size_of(type));
  kernels::scalar::decode_values({coding, coded.data(), c.count, out.data(), type, 1});
  return out;
}

Memory summed(const CodedCase& c, int rank, std::uint32_t call_number) {
  std::vector<float> sums(c.count);
  for (int r = 0; r < c.ranks; ++r) {
    const Memory block = decoded(c, r, static_cast<std::size_t>(rank), DType::f32, call_number);
    const auto* values = reinterpret_cast<const float*>(block.data());
    for (std::size_t i = 0; i < c.count; ++i) sums[i] = r == 0 ? values[i] : sums[i] + values[i];
  }
  for (float& sum : sums) sum /= c.op == Op::avg ? static_cast<float>(c.ranks) : 1;
  Memory out(c.count * size_of(c.type));
  const auto* from = reinterpret_cast<const std::byte*>(sums.data());
  kernels::cast(out.data(), c.type, from, DType::f32, c.count);
  return out;
}

Memory expected(const CodedCase& c, int rank, std::uint32_t call_number) {
  if (c.collective == Collective::reduce_scatter) return summed(c, rank, call_number);
  if (c.collective == Collective::broadcast) return decoded(c, c.root, 0, c.type, call_number);
  Memory all;
  for (int r = 0; r < c.ranks; ++r) {
    const bool one_each = c.collective == Collective::alltoall;
    const std::size_t block = one_each ? static_cast<std::size_t>(rank) : 0;
    const Memory part = decoded(c, r, block, c.type, call_number);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// What is wrong where a rank's call has succeeded; empty is good, here and below.
std::string check(const CodedCase& c, const CodedProgram& program, int rank) {
  const CodedBuffers& own = program.buffers(rank);
  if (own.result() != expected(c, rank, program.number())) {
    return fmt::format("rank {} differs", rank);
  }
  const bool kept = c.in_place || (c.collective == Collective::broadcast && rank != c.root) ||
                    own.send == input_of(c, rank);
  return kept ? "" : fmt::format("rank {}: send has changed", rank);
}

SimConfig world_of(const CodedCase& c) {
  SimConfig config = c.sim;
  config.ranks = c.ranks;
  return config;
}

std::string run(const CodedCase& c) {
  World world(world_of(c));
  if (c.order != 0) world.set_order(random_order(c.ranks, c.order));
  CodedProgram program(c);
  for (const Error& error :
       run_ranks(world, [&](Call&call, int rank) { return program.start(call, rank); })) {
    if (error) return error.message();
  }
  for (int rank = 0; rank < c.ranks; ++rank) {
    std::string failure = check(c, program, rank);
    if (!failure.empty()) return failure;
  }
  return world.leaks();
}

// All ranks end, and those that succeed have their results.
bool interrupt(const CodedCase& c, int, const Interruption& where, std::string& failure) {
  World world(world_of(c));
  CodedProgram program(c);
  const auto [reached, errors] = interrupt_call(program, world, where);
  for (int rank = 0; rank < c.ranks && failure.empty(); ++rank) {
    const Error& error = errors[static_cast<std::size_t>(rank)];
    if (!world.ended(rank)) failure = fmt::format("rank {} never ends", rank);
    if (error.code() == Code::internal) failure = error.message();
    if (!error && failure.empty()) failure = check(c, program, rank);
  }
  failure += world.leaks();
  return reached;
}

constexpr Collective collectives[] = {Collective::allgather, Collective::reduce_scatter,
                                      Collective::broadcast, Collective::alltoall};
constexpr DType types[] = {DType::f32, DType::f16, DType::bf16};
const char* const specs[] = {"int8",
                             "fp16",
                             "int8:map=dynamic",
                             "fp8",
                             "qsgd:bits=2,seed=5",
                             "natural:block=128",
                             "terngrad:clip=2",
                             "bf16",
                             "fp8:format=e5m2,block=4096"};

}  // namespace

TEST_CASE("coded moves give what coding makes of each value", "[collectives][coded]") {
  std::size_t turn = 0;
  for (const Collective collective : collectives) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      for (const std::size_t count : {1, 17, 1000, 20'001}) {
        CodedCase c;
        c.collective = collective;
        c.ranks = ranks;
        c.count = count;
        c.spec = specs[turn % std::size(specs)];
        c.type = types[turn / 2 % std::size(types)];
        c.op = turn % 3 == 0 ? Op::avg : Op::sum;
        c.root = static_cast<int>(turn) % ranks;
        c.in_place = turn % 2 == 0 && collective != Collective::alltoall;
        c.order = turn % 4;
        ++turn;
        INFO(describe(c));
        CHECK(run(c) == "");
      }
    }
  }
}

TEST_CASE("coded moves of long vectors, and with chunks of the usual size",
          "[collectives][coded]") {
  for (const Collective collective : collectives) {
    CodedCase c;
    c.collective = collective;
    c.ranks = 3;
    c.count = 300'001;
    c.root = 1;
    c.tuning = {};
    INFO(describe(c));
    CHECK(run(c) == "");
  }
}

TEST_CASE("coded moves of 16 and 33 ranks", "[collectives][coded]") {
  for (const Collective collective : collectives) {
    for (const int ranks : {16, 33}) {
      CodedCase c;
      c.collective = collective;
      c.ranks = ranks;
      c.spec = "qsgd";
      c.root = ranks - 1;
      INFO(describe(c));
      CHECK(run(c) == "");
    }
  }
}

TEST_CASE("coded moves of many ranks, whose messages come in any order", "[collectives][coded]") {
  std::size_t turn = 0;
  for (const Collective collective : collectives) {
    CodedCase c;
    c.collective = collective;
    c.ranks = full && !sanitized ? 256 : 32;
    c.count = 300;
    c.spec = specs[turn++ % std::size(specs)];
    c.root = c.ranks / 3;
    c.sim.jitter_s = 1e-3;
    INFO(describe(c));
    CHECK(run(c) == "");
    CodedProgram program(c);
    World world(world_of(c));
    const std::uint64_t steps = steps_of_call(program, world);
    CHECK(interrupt_everywhere(c, 0, steps / 3 + 1, interrupt) == "");
  }
}

// A kernel whose fence is forgotten works too late here; messages come at odd times.
TEST_CASE("coded moves wait for their kernels", "[collectives][coded]") {
  for (const Collective collective : collectives) {
    for (const DType type : types) {
      CodedCase c;
      c.collective = collective;
      c.ranks = 4;
      c.count = 5000;
      c.type = type;
      c.sim.late_kernels = true;
      c.sim.kernel_s = 2e-5;
      c.sim.jitter_s = 5e-5;
      INFO(describe(c));
      CHECK(run(c) == "");
    }
  }
}

TEST_CASE("all strands have parcels, which are whole blocks of the coding",
          "[collectives][coded]") {
  for (const char* spec : specs) {
    for (const int ranks : {2, 7, 1000}) {
      CollectiveArgs args;
      args.collective = Collective::alltoall;
      args.count = 100'003;
      const Coding coding = WireCoding::of(*Spec::parse(spec))->coding();
      const CodedParcels parcels(args, coding, ranks);
      std::size_t covered = 0;
      for (std::size_t k = 0; k < parcels.size(); ++k) {
        CHECK(parcels.columns(k).begin == covered);
        CHECK(covered % coding.block == 0);
        covered += parcels.columns(k).size;
      }
      CHECK(covered == args.count);
      CHECK(parcels.strands() <= parcels.size());
    }
  }
}

// Of long calls of eight ranks, as coded or plain ones, with a link each.
struct TimedMove {
  explicit TimedMove(Collective collective) {
    c.collective = collective;
    c.ranks = 8;
    c.count = collective == Collective::broadcast ? 1'600'000 : 200'000;
    c.tuning = {};
  }

  double seconds(bool coded) {
    SimConfig config;
    config.ranks = c.ranks;
    config.link = {link.alpha, link.beta};
    World world(config);
    const CodedProgram program(c);
    for (const Error& error : run_ranks(world, [&](Call&call, int rank) {
           CollectiveArgs args = program.buffers(rank).args;
           args.root = call.place_of(args.root);
           const std::size_t bytes = args.count * size_of(args.type);
           const Algorithm& plain = call.chooser().algorithm(c.collective, bytes);
           if (!coded) return plain.run(call, args);
           const CodedMoveShape move(args, args.wire.coding(), c.ranks);
           carrier = &call.chooser().algorithm(move.carrier, move.block);
           return run_coded(call, args);
         })) {
      REQUIRE_FALSE(error);
    }
    return world.elapsed_s();
  }

  double promised() const {
    CollectiveArgs args;
    args.collective = c.collective;
    args.count = c.count;
    const CodedMoveShape move(args, wire_of(c).coding(), c.ranks);
    return move.seconds(link, [&](const LinkCost& on, std::size_t bytes) {
      return carrier->cost({c.ranks, bytes, args.tuning}, on);
    });
  }

  const LinkCost link{20e-6, 1e-9};
  CodedCase c;
  const Algorithm* carrier = nullptr;
};

// With as few bits as int8 has, long calls take a quarter of the time or little more, and at most
// what the cost function says: it does not know that strands fill gaps inside each other's calls.
TEST_CASE("coded moves take the time that their bytes take", "[collectives][coded]") {
  for (const Collective collective : collectives) {
    TimedMove move(collective);
    const double coded = move.seconds(true);
    const double ratio = coded / move.seconds(false);
    INFO(name_of(collective) << ": " << ratio << ", " << coded / move.promised()
                             << " of what is promised");
    CHECK(ratio > 0.2);
    CHECK(ratio < 0.45);
    CHECK(coded > 0.7 * move.promised());
    CHECK(coded < 1.1 * move.promised());
  }
}

TEST_CASE("which specs code moves", "[collectives][coded]") {
  for (const char* spec : specs) {
    const Spec given = *Spec::parse(spec);
    const Expected<WireCoding> wire = WireCoding::of(given);
    REQUIRE(wire);
    CHECK(wire->spec() == given);
  }
  for (const char* spec : {"none", "topk:density=0.1", "int8:feedback=1", "fp8:feedback=1", "sign",
                           "signum", "bounded", "efsign", "powersgd:rank=2"}) {
    const Expected<WireCoding> wire = WireCoding::of(*Spec::parse(spec));
    REQUIRE_FALSE(wire);
    const std::string text = wire.error().message();
    INFO(text);
    CHECK(text.find(fmt::format("compressor is {}", Spec::parse(spec)->text())) == 0);
    CHECK(text.find(
              "expected bf16, fp16, int8, fp8, qsgd, terngrad or natural, without feedback=1") !=
          text.npos);
  }
}

}  // namespace pith::test
