// Do compressed gradients train as well as dense ones, and parameters that are averaged by gossip?
// Digits, four ranks that are threads, the same split, start and order of samples for all schemes,
// each layer with a compressor of its own.
//
// What is measured is the training loss: the accuracy barely tells one scheme from another, and
// not even those that throw away what they do not send.
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tools/demo/check.hpp"
#include "tools/demo/dataset.hpp"
#include "tools/demo/scheme_training.hpp"

namespace {

using pith::demo::check;
using pith::demo::Dataset;
using pith::demo::Model;
using pith::demo::SchemePlan;
using pith::demo::SchemeRun;

constexpr int ranks = 4;

struct Task {
  std::vector<std::size_t> widths;
  std::size_t steps;
  std::vector<std::uint64_t> seeds;
};

struct Mean {
  double accuracy = 0;  // percent
  double loss = 0;
  double density = 0;  // percent
};

// All ranks' training. Throws the first rank's exception.
std::vector<SchemeRun> train(const SchemePlan& plan, const Dataset& data, const Task& task) {
  std::vector<pithComm_t> comms(ranks);
  check(pithCommInitAll(comms.data(), ranks, nullptr), "pithCommInitAll");
  std::vector<SchemeRun> runs(ranks);
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      try {
        runs[index] = pith::demo::train_with_scheme(plan, data, Model(task.widths), comms[index],
                                                    ranks, rank);
      } catch (...) {
        failures[index] = std::current_exception();
        pithCommAbort(std::exchange(comms[index], nullptr));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  for (pithComm_t comm : comms) check(pithCommDestroy(comm), "pithCommDestroy");
  return runs;
}

class Trainings {
 public:
  explicit Trainings(Task task)
      : task_(std::move(task)), digits_(pith::demo::read_digits(PITH_DIGITS)) {}

  // Mean over the seeds.
  const Mean& of(const std::string& spec) {
    const auto [place, is_new] = done_.try_emplace(spec);
    Mean& mean = place->second;
    if (!is_new) return mean;
    for (const std::uint64_t seed : task_.seeds) {
      SchemePlan plan;
      plan.spec = spec;
      plan.steps = task_.steps;
      plan.rate = 0.02F;
      plan.momentum = 0.9F;
      plan.seed = seed;
      plan.evaluate_every = task_.steps;
      const SchemeRun run = train(plan, pith::demo::split_digits(digits_, seed), task_)[0];
      const double share = 1.0 / static_cast<double>(task_.seeds.size());
      mean.accuracy += 100 * share * run.accuracy;
      mean.loss += share * run.loss;
      mean.density += 100 * share * run.density;
    }
    fmt::print("{:<60} accuracy {:6.2f} %  loss {:8.5f}  density {:6.3f} %\n", spec, mean.accuracy,
               mean.loss, mean.density);
    std::fflush(stdout);
    return mean;
  }

 private:
  Task task_;
  pith::demo::Samples digits_;
  std::map<std::string, Mean> done_;
};

std::string sparse(const std::string& scheme, const std::string& density,
                   const std::string& more = "") {
  return fmt::format("{}density={},bypass=never{}", scheme, density, more);
}

// Of each rank's model.
std::vector<SchemeRun> train_a_small_network(const std::string& spec) {
  SchemePlan plan;
  plan.spec = spec;
  plan.steps = 200;
  plan.evaluate_every = 50;
  const pith::demo::Samples digits = pith::demo::read_digits(PITH_DIGITS);
  return train(plan, pith::demo::split_digits(digits, plan.seed),
               {{pith::demo::image_pixels, 64, pith::demo::class_count}, plan.steps, {plan.seed}});
}

double distance(const SchemeRun& one, const SchemeRun& other) {
  double squares = 0;
  for (std::size_t i = 0; i < one.parameters.size(); ++i) {
    squares += std::pow(double{one.parameters[i]} - double{other.parameters[i]}, 2);
  }
  return std::sqrt(squares);
}

const std::vector<std::string> schemes = {"topk:", "ar-topk:election=staleness,",
                                          "ar-topk:election=variance,", "exdyna:"};

}  // namespace

TEST_CASE("a small network learns from one gradient element in a hundred", "[training]") {
  Trainings trainings({{pith::demo::image_pixels, 128, pith::demo::class_count}, 500, {1, 2}});
  const Mean dense = trainings.of("dense");
  REQUIRE(dense.accuracy > 95);
  std::vector<std::string> all = schemes;
  all.emplace_back("deft:");
  for (const std::string& scheme : all) {
    const std::string spec = sparse(scheme, "0.01");
    CAPTURE(spec);
    const Mean& mean = trainings.of(spec);
    CHECK(mean.loss <= 1.3 * dense.loss);
    CHECK(mean.accuracy >= dense.accuracy - 1);
  }
  CHECK(trainings.of(sparse("topk:", "0.01", ",feedback=0")).loss >= 2.5 * dense.loss);
}

TEST_CASE("gossip that tells everything trains one model, as the mean of gradients does",
          "[training]") {
  const std::vector<SchemeRun> dense = train_a_small_network("dense");
  const auto gossip = train_a_small_network("choco:density=1,gamma=1,graph=complete");
  for (std::size_t rank = 0; rank < dense.size(); ++rank) {
    CHECK(distance(dense[rank], dense[0]) == 0);
    CHECK(distance(gossip[rank], dense[0]) < 1e-2);  // 200 steps make rounding grow to 2e-3
  }
  CHECK(gossip[0].loss == Approx(dense[0].loss).epsilon(1e-3));
}

TEST_CASE("ranks that average parameters by gossip learn, and their models stay near each other",
          "[training]") {
  const std::vector<SchemeRun> gossip = train_a_small_network("choco:density=0.1,gamma=0.1");
  const std::vector<SchemeRun> alone = train_a_small_network("choco:density=0.1,gamma=1e-9");
  CHECK(gossip[0].curve.front().accuracy < 0.3);
  CHECK(gossip[0].curve.back().accuracy > 0.9);
  for (std::size_t rank = 1; rank < gossip.size(); ++rank) {
    CHECK(gossip[rank].accuracy == gossip[0].accuracy);  // the mean
    CHECK(distance(gossip[rank], gossip[0]) > 0);
    CHECK(distance(gossip[rank], gossip[0]) < 0.3 * distance(alone[rank], alone[0]));
  }
}

TEST_CASE("the demo's network learns from few elements as from all", "[training][long]") {
  Trainings trainings(
      {{pith::demo::image_pixels, 1024, 1024, pith::demo::class_count}, 500, {1, 2, 3}});
  const Mean dense = trainings.of("dense");
  for (const std::string& scheme : schemes) {
    for (const auto& [density, points] : {std::pair{"0.01", 0.3}, {"0.001", 0.7}}) {
      const std::string spec = sparse(scheme, density);
      CAPTURE(spec);
      const Mean& mean = trainings.of(spec);
      CHECK(mean.loss <= 1.3 * dense.loss);
      CHECK(mean.accuracy >= dense.accuracy - points);
    }
  }
  for (const char* density : {"0.01", "0.001"}) {
    CHECK(trainings.of(sparse("topk:", density, ",feedback=0")).loss >= 2.5 * dense.loss);
  }
}
