// A rank that dies, and an abort, at every step of a compressed allreduce: no gradient is lost.
#include "tests/catch.hpp"
#include "tests/collectives/interruption.hpp"

namespace pith::test {

namespace {

// What a shrink does where others have not completed the call.
void take_back(SparseProgram& program, int rank, int calls_before) {
  HostCompute host;
  for (std::size_t t = 0; t < program.sparse_case().counts.size(); ++t) {
    program.compressor(rank, t).return_after(host, static_cast<std::uint32_t>(calls_before));
  }
}

// False where the call ended before the interruption.
bool interrupt(const SparseCase& c, int calls_before, const Interruption& where,
               std::string& failure) {
  SparseProgram program(c);
  World world(world_of(c));
  failure = program.begin(world, calls_before);
  if (!failure.empty()) return false;
  const std::vector<std::vector<float>> all = program.owed_by_all();
  const auto [reached, errors] = interrupt_call(program, world, where);
  bool undone = false;
  for (int r = 0; r < c.ranks; ++r) {
    undone |= where.survived_by(r) && errors[static_cast<std::size_t>(r)];
  }
  for (int r = 0; r < c.ranks && failure.empty(); ++r) {
    const Error& error = errors[static_cast<std::size_t>(r)];
    if (!world.ended(r)) failure = fmt::format("rank {} never ends", r);
    if (error.code() == Code::internal) failure = error.message();
    if (!undone || !where.survived_by(r)) continue;
    if (!error) take_back(program, r, calls_before);
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      const auto& expected = all[static_cast<std::size_t>(r) * c.counts.size() + t];
      if (!about_equal(program.residual(r, t), expected)) {
        failure = fmt::format("rank {}: gradients are lost in tensor {}", r, t);
      }
    }
  }
  failure += world.leaks();
  return reached;
}

// Whether calls leave nothing behind.
bool is_dense(const SparseCase& c) {
  SparseProgram program(c);
  World world(world_of(c));
  REQUIRE(program.begin(world, 1) == "");
  return program.compressor(0).stats.bypassed || !program.compressor(0).spec().sparse();
}

}  // namespace

TEST_CASE("an end at any step of AR-Topk loses no gradient", "[ar-topk][abort]") {
  for (const char* rest :
       {"election=staleness", "election=variance,score=compressed", "election=variance,score=raw",
        "election=variance-lagged", "values=bf16", "values=f16,reduction=ring",
        "values=bf16,reduction=tree", "reduction=ring", "reduction=tree"}) {
    for (int ranks = 2; ranks <= 5; ++ranks) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {60, 0, 20};
      c.spec = fmt::format("ar-topk:density=0.2,{}", rest);
      CHECK(interrupt_everywhere(c, ranks, 1, interrupt) == "");
    }
  }
}

TEST_CASE("an end at any step of streamed AR-Topk loses no gradient", "[ar-topk][abort]") {
  for (const char* rest : {"election=staleness", "election=variance", "values=f16"}) {
    SparseCase c;
    c.ranks = 3;
    c.counts = {140000};
    c.spec = fmt::format("ar-topk:density=0.01,{}", rest);
    c.chunk_bytes = 1024;
    c.in_place = true;  // what has been written must not be added
    CHECK(interrupt_everywhere(c, 3, 7, interrupt) == "");
  }
}

TEST_CASE("an end at any step of top-k loses no gradient", "[sparse][abort]") {
  for (const char* exchange : {"direct", "ring"}) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {60, 0, 20};
      c.spec = fmt::format("topk:density=0.2,exchange={}", exchange);
      CHECK(interrupt_everywhere(c, 2, 1, interrupt) == "");
      c.counts = {140000};
      c.spec = fmt::format("topk:density=0.01,exchange={}", exchange);
      c.chunk_bytes = 1024;
      CHECK(interrupt_everywhere(c, 2, 11, interrupt) == "");
    }
  }
}

TEST_CASE("an end at any step of an exclusive election loses no gradient", "[exdyna][abort]") {
  for (const char* rest : {"values=bf16", "values=f16,reduction=ring", "values=bf16,reduction=tree",
                           "reduction=tree"}) {
    SparseCase c;
    c.ranks = 3;
    c.counts = {600, 0, 200};
    c.spec = fmt::format("exdyna:density=0.1,{}", rest);
    CHECK(interrupt_everywhere(c, 3, 1, interrupt) == "");
    // In rounds: results of the first ones are written where the last ones are still to be read.
    c.chunk_bytes = 16;
    for (const bool in_place : {false, true}) {
      c.in_place = in_place;
      CHECK(interrupt_everywhere(c, 3, 1, interrupt) == "");
    }
  }
}

TEST_CASE("an end at any step of MiCRO, or by its authors' rules, loses no gradient",
          "[exdyna][abort]") {
  for (const char* spec : {"micro:density=0.1", "micro:density=0.1,rule=intended,values=bf16",
                           "micro:density=0.1,rule=released", "exdyna:density=0.1,rule=released",
                           "exdyna:density=0.1,rule=intended,values=f16"}) {
    SparseCase c;
    c.ranks = 3;
    c.counts = {600, 0, 200};
    c.spec = spec;
    c.chunk_bytes = 16;  // rounds, by our rule
    for (const bool in_place : {false, true}) {
      c.in_place = in_place;
      CHECK(interrupt_everywhere(c, 3, 1, interrupt) == "");
    }
  }
}

TEST_CASE("an end at any step of top-k whose lists travel whole loses no gradient",
          "[sparse][abort]") {
  for (const char* exchange : {"ring", "split", "recursive-doubling"}) {
    for (const char* values : {"f32", "bf16"}) {
      SparseCase c;
      c.ranks = 3;
      c.counts = {60, 0, 20};
      c.spec = fmt::format("topk:density=0.2,exchange={},values={}", exchange, values);
      CHECK(interrupt_everywhere(c, 2, 1, interrupt) == "");
    }
  }
}

TEST_CASE("an end at any step of a call that moves everything loses no gradient",
          "[sparse][abort]") {
  for (const char* spec : {"bf16", "none", "topk:density=0.9,bypass=auto"}) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {60, 0, 20};
      c.spec = spec;
      CHECK(is_dense(c));
      CHECK(interrupt_everywhere(c, 2, 1, interrupt) == "");
    }
  }
}

TEST_CASE("an end at any step of DEFT loses no gradient", "[deft][abort]") {
  for (const char* rest : {"", ",values=bf16", ",reduction=tree"}) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {60, 0, 20};
      c.spec = fmt::format("deft:density=0.2{}", rest);
      CHECK(interrupt_everywhere(c, ranks, 1, interrupt) == "");
    }
  }
}

}  // namespace pith::test
