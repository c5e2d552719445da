// What the check of compressed calls rests on: its gradients, its top-k, its count of errors.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "frame/compressed_check.hpp"
#include "frame/gradients.hpp"
#include "frame/library_topk.hpp"
#include "frame/move_check.hpp"
#include "tests/catch.hpp"

namespace {

using namespace pith_perf;
using pith::Spec;

// Some calls of three ranks of this thread, checked as if they were of another scheme.
Errors check_as(const std::string& called, const std::string& checked) {
  constexpr int ranks = 3;
  constexpr std::size_t count = 5000;
  pithUniqueId id;
  must(pithGetUniqueId(&id), "pithGetUniqueId");
  const Team team(join(id, 0, ranks, ranks), 0, ranks);
  const Compressors compressors(spec_to_measure(called), team);
  CompressedCheck check(spec_to_measure(checked), team, count, pithFloat32, pithSum);
  std::vector<std::vector<float>> results(ranks, std::vector<float>(count));
  Errors errors;
  for (std::size_t call = 0; call < 4; ++call) {
    std::vector<std::vector<float>> gradients;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<float> own(count + Gradients::slack());
      Gradients("").fill(own, rank);
      const auto begin = own.begin() + static_cast<std::ptrdiff_t>(Gradients::shift_of_call(call));
      gradients.emplace_back(begin, begin + count);
    }
    team.each("pithAllReduceCompressed", [&](int local) {
      const auto index = static_cast<std::size_t>(local);
      return pithAllReduceCompressed(gradients[index].data(), results[index].data(), count,
                                     pithFloat32, pithSum, compressors[local], team.comm(local),
                                     nullptr);
    });
    errors.merge(check.check({gradients.begin(), gradients.end()}, {results.begin(), results.end()},
                             compressors));
  }
  return errors;
}

Counts reduce_scatter_counts(std::size_t count, std::size_t, std::size_t ranks) {
  return {count, count / ranks, count / ranks, 0, 0};
}

pithResult_t reduce_scatter(const CallArgs& args) {
  return pithReduceScatter(args.send, args.recv, args.count, args.type, args.op, args.comm,
                           nullptr);
}

// The same of a move, of three ranks' parts.
Errors check_move_as(const std::string& called, const std::string& checked) {
  constexpr int ranks = 3;
  const Collective collective{.program = "reduce_scatter_perf",
                              .name = "reduce_scatter",
                              .has_op = true,
                              .counts = reduce_scatter_counts,
                              .bus_factor = nullptr,
                              .expected = nullptr,
                              .call = reduce_scatter};
  const Counts counts = collective.counts(6000, 4, ranks);
  pithUniqueId id;
  must(pithGetUniqueId(&id), "pithGetUniqueId");
  const Team team(join(id, 0, ranks, ranks), 0, ranks);
  const Compressors compressors(spec_to_measure(called), team);
  Vectors given(ranks, std::vector<float>(counts.send));
  Vectors results(ranks, std::vector<float>(counts.recv));
  for (int rank = 0; rank < ranks; ++rank) {
    Gradients("").fill(given[static_cast<std::size_t>(rank)], rank);
  }
  team.each("pithReduceScatterCompressed", [&](int local) {
    const auto index = static_cast<std::size_t>(local);
    return pithReduceScatterCompressed(given[index].data(), results[index].data(), counts.call,
                                       pithFloat32, pithAvg, compressors[local], team.comm(local),
                                       nullptr);
  });
  CallArgs args{};
  args.type = pithFloat32;
  args.op = pithAvg;
  const MoveCheck check(*coding_of(spec_to_measure(checked)), collective, counts);
  return check.check(given, results, args, team);
}

}  // namespace

TEST_CASE("moves of coded values may be off by their rounding, and no more", "[perf]") {
  for (const std::string spec : {"bf16", "int8", "fp8", "qsgd:bits=2", "natural", "terngrad"}) {
    INFO(spec);
    CHECK(check_move_as(spec, spec).wrong == 0);
  }
  CHECK(check_move_as("qsgd", "int8").wrong > 0);
  CHECK(check_move_as("int8", "bf16").wrong > 0);
  CHECK(check_move_as("natural", "fp8").wrong > 0);
}

TEST_CASE("made-up gradients differ by rank, repeat, and have heavy tails", "[perf]") {
  const Gradients gradients("");
  constexpr std::size_t count = 200000;
  std::vector<float> one(count);
  std::vector<float> other(count);
  std::vector<float> again(count / 2);
  gradients.fill(one, 1);
  gradients.fill(other, 2);
  gradients.fill(again, 1);
  CHECK(std::equal(again.begin(), again.end(), one.begin()));
  CHECK(one != other);
  double squares = 0;
  double largest = 0;
  for (const float value : one) {
    squares += double(value) * double(value);
    largest = std::max(largest, std::abs(double(value)));
  }
  CHECK(largest / std::sqrt(squares / count) > 8);  // of a Gaussian's 200000 about 4.5
}

TEST_CASE("a vector's top-k takes the largest, of equal ones the first", "[perf]") {
  std::vector<float> sums = {1, -3, 2, 3, 0, -2, 2};
  const Pairs pairs = take_topk(sums, 4, pith::DType::f32);
  CHECK(pairs.indices == std::vector<std::uint32_t>{1, 2, 3, 5});
  CHECK(pairs.values == std::vector<float>{-3, 2, 3, -2});
  CHECK(sums == std::vector<float>{1, 0, 0, 0, 0, 0, 2});
}

TEST_CASE("a vector's top-k leaves what rounding loses", "[perf]") {
  std::vector<float> sums = {0.5F, 1 + 0x1p-10F};
  const Pairs pairs = take_topk(sums, 1, pith::DType::bf16);
  CHECK(pairs.values == std::vector<float>{1});
  CHECK(sums == std::vector<float>{0.5F, 0x1p-10F});
}

TEST_CASE("errors outside what is allowed are wrong, and so is no number", "[perf]") {
  Errors errors;
  errors.add(-0.5, 1);
  CHECK(errors.wrong == 0);
  errors.add(2, 1);
  errors.add(NAN, 1);
  CHECK(errors.wrong == 2);
  CHECK(std::isinf(errors.largest));
}

TEST_CASE("values in few bits may be off by their rounding, and no more", "[perf]") {
  const std::vector<std::string> specs = {"bf16",
                                          "int8",
                                          "fp8",
                                          "fp8:format=e5m2",
                                          "int8:feedback=1",
                                          "qsgd",
                                          "qsgd:bits=2",
                                          "natural",
                                          "sign",
                                          "efsign",
                                          "powersgd",
                                          "atomo",
                                          "terngrad",
                                          "onebit",
                                          "3lc",
                                          "3lc:sparsity=1.9",
                                          "fp16",
                                          "int8:map=dynamic",
                                          "signum",
                                          "bounded",
                                          "bounded:abs=1e-4,feedback=1",
                                          "bounded:abs=1e-12",
                                          "bounded:rel=1e-8"};
  for (const std::string& spec : specs) {
    INFO(spec);
    CHECK(check_as(spec, spec).wrong == 0);
  }
  CHECK(check_as("qsgd", "int8").wrong > 0);
  CHECK(check_as("atomo:seed=1", "atomo").wrong > 0);
  CHECK(check_as("int8", "bf16").wrong > 0);
  CHECK(check_as("int8", "fp16").wrong > 0);
  CHECK(check_as("int8", "bounded").wrong > 0);
  CHECK(check_as("bounded:abs=1e-5", "bounded:abs=1e-6").wrong > 0);
  CHECK(check_as("sign", "signum").wrong > 0);
  CHECK(check_as("qsgd:bits=2", "sign").wrong > 0);
  CHECK(check_as("topk", "int8").wrong > 0);
  CHECK(check_as("int8:feedback=1", "int8").wrong > 0);
}

TEST_CASE("additions of a sum may be off by half a unit each, and no more", "[perf]") {
  CHECK(rounding_of_additions(1) == 0);
  constexpr float half_unit = 0x1p-24F;
  const float sum = (1 + half_unit) + half_unit;  // each is lost
  CHECK(1 + 2 * double{half_unit} - double{sum} <= rounding_of_additions(3));
  CHECK(1 + 2 * double{half_unit} - double{sum} > rounding_of_additions(2));
}

TEST_CASE("sums of lossless messages are those in rank order, bit for bit", "[perf]") {
  if (!Spec::parse("lossless")) return;  // a build without libzstd
  CHECK(check_as("lossless", "lossless").wrong == 0);
  CHECK(check_as("bounded:abs=1e-8", "lossless").wrong > 0);
}

TEST_CASE("lists that nobody keeps have no element larger than ranks had", "[perf]") {
  for (const char* const spec :
       {"spardl:density=0.02,feedback=0", "ok-topk:density=0.02,feedback=0",
        "gtopk:density=0.02,feedback=0", "gtopk:density=0.9,values=bf16,feedback=0",
        "ok-topk:density=0.9,values=f16,feedback=0", "topk:density=0.1,values=int4,feedback=0",
        "topk:density=0.1,values=int8,feedback=0", "topk:density=auto,feedback=0"}) {
    INFO(spec);
    CHECK(check_as(spec, spec).wrong == 0);
  }
  for (const char* const spec :
       {"spardl:feedback=0", "gtopk:feedback=0", "topk:density=auto,feedback=0"}) {
    INFO(spec);
    CHECK(check_as("topk:density=0.02", spec).wrong > 0);  // what it kept comes later
  }
}

TEST_CASE("results of schemes with rules of their own are right", "[perf]") {
  for (const char* const spec :
       {"threshold:value=0.1", "sidco:density=0.02,values=bf16", "sidco:feedback=0",
        "dgc:density=0.02,warmup=2", "dgc:density=0.05,clip=0.5,values=f16", "wangni:density=0.02",
        "adaptive:density=0.02", "adaptive:feedback=0", "arc-topk:density=0.02",
        "arc-topk:sketch=1,values=bf16", "arc-topk:feedback=0", "clt-k:density=0.02,beta=0.5",
        "gtopk:density=0.02", "gtopk:density=0.02,values=bf16"}) {
    INFO(spec);
    CHECK(check_as(spec, spec).wrong == 0);
  }
  CHECK(check_as("topk:density=0.02", "dgc:density=0.02").wrong > 0);
}

TEST_CASE("elections of another scheme are wrong, though their sums are right", "[perf]") {
  const std::string star = "ar-topk:density=0.02";
  for (const std::string& spec :
       {star, star + ",election=variance", std::string("exdyna:density=0.02"),
        std::string("micro:density=0.02,rule=released"), std::string("deft:density=0.02")}) {
    INFO(spec);
    CHECK(check_as(spec, spec).wrong == 0);
  }
  // Fewer; those of another leader; of no leader; what has left one rank only.
  CHECK(check_as("ar-topk:density=0.01", star).wrong > 0);
  CHECK(check_as(star + ",election=variance", star).wrong > 0);
  CHECK(check_as(star, star + ",election=variance").wrong > 0);
  CHECK(check_as("exdyna:density=0.02", star).wrong > 0);
  for (const char* const owners : {"exdyna", "micro", "deft"}) {
    CHECK(check_as("topk:density=0.02", owners + std::string(":density=0.02")).wrong > 0);
  }
}
