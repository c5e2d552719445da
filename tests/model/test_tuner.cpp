// What is learnt from the times of calls, made up here: every algorithm has a true time, and calls
// take it with noise.
#include "model/tuner.hpp"

#include <map>
#include <string>

#include "collectives/registry.hpp"
#include "tests/catch.hpp"
#include "tests/model/noise.hpp"

namespace pith::test {

namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t bytes = 1024 * kib;

Settings learning() {
  Settings settings;
  settings.learn = true;
  return settings;
}

// Calls of allreduce by 4 ranks, planned as CallPlanner does: the rivals in turns between calls of
// the choice, early on and while they are new.
class World {
 public:
  explicit World(double noise, double late = 0.05) : noise_(3, noise, late) {}

  // By Choices::text_of.
  void set(std::string_view plan, double seconds) { true_s_[std::string(plan)] = seconds; }
  // How many calls were made by a rival.
  int call(int count) {
    int rivals = 0;
    for (int i = 0; i < count; ++i) {
      const Choices::Cell& cell = wanted();
      const bool is_new = cell.is_new || calls_++ < 512;
      const bool is_rival = is_new && i % 4 == 0 && cell.rival_count > 0;
      rivals += is_rival;
      time(is_rival ? cell.rivals[std::size_t(i / 4) % cell.rival_count] : chosen_plan());
    }
    return rivals;
  }
  std::string chosen() const { return Choices::text_of(chosen_plan()); }
  const Choices::Cell& wanted() const {
    return tuner_.wanted().at(Collective::allreduce, SizeClass(bytes));
  }
  Tuner& tuner() { return tuner_; }

 private:
  static const Model& sharing_memory(Model& model) {
    model.set_views(true);
    return model;
  }
  Choices::Plan chosen_plan() const {
    const Choices::Plan plan = wanted().chosen;
    return plan == Choices::by_model
               ? Choices::plan_of(model_.algorithm(Collective::allreduce, bytes))
               : plan;
  }
  void time(Choices::Plan plan) {
    const auto known = true_s_.find(Choices::text_of(plan));
    tuner_.add({&Choices::algorithm_of(plan), Choices::variant_of(plan), bytes,
                noise_.of(known == true_s_.end() ? 5e-3 : known->second)});
  }

  Model model_{learning(), 4};
  Tuner tuner_{sharing_memory(model_)};
  Noise noise_;
  std::map<std::string, double> true_s_;
  int calls_ = 0;
};

}  // namespace

TEST_CASE("the fastest algorithm becomes the choice, and the others are given up", "[tuner]") {
  const std::string best = GENERATE("ring", "rabenseifner", "two_shot", "two_shot by copies");
  World world(0.1);
  world.set(best, 1e-3);
  world.set("double_tree", 1.5e-3);
  const int tried = world.call(600);
  CHECK(world.chosen() == best);
  CHECK(world.wanted().rival_count == 0);
  CHECK(tried < 80);
  CHECK(world.call(1000) == 0);
}

TEST_CASE("algorithms that are as fast do not take turns", "[tuner]") {
  World world(0.1);
  for (const Algorithm& algorithm : algorithms()) world.set(algorithm.name, 1e-3);
  world.call(500);
  CHECK(world.wanted().rival_count == 0);
  const std::size_t changes = world.tuner().take_reasons().size();
  CHECK(changes <= 2);
  world.call(20'000);
  CHECK(world.tuner().take_reasons().size() <= 1);
}

TEST_CASE("a small gain is not worth a change", "[tuner]") {
  World world(0.002, 0);
  for (const Algorithm& algorithm : algorithms()) world.set(algorithm.name, 1e-3);
  world.set(world.chosen(), 1.028e-3);
  world.call(1000);
  CHECK(world.tuner().take_reasons().empty());
}

TEST_CASE("rivals are tried anew when the times of a settled size change", "[tuner]") {
  World world(0.1);
  for (const Algorithm& algorithm : algorithms()) world.set(algorithm.name, 3e-3);
  world.set("ring", 1e-3);
  world.call(1000);
  REQUIRE(world.chosen() == "ring");
  REQUIRE(world.wanted().rival_count == 0);
  world.tuner().take_reasons();

  world.set("ring", 6e-3);
  world.call(300);
  CHECK(world.chosen() != "ring");
  const std::vector<std::string> reasons = world.tuner().take_reasons();
  REQUIRE_FALSE(reasons.empty());
  CHECK(reasons.front().starts_with("allreduce of up to 1048576 bytes: "));
  CHECK(reasons.front().find(" instead of ring ") != std::string::npos);
}

TEST_CASE("links that keep changing are not tried at each change", "[tuner]") {
  World world(0.1);
  int tried = 0;
  for (int change = 0; change < 200; ++change) {
    for (const Algorithm& algorithm : algorithms()) {
      world.set(algorithm.name, change % 2 == 0 ? 1e-3 : 3e-3);
    }
    tried += world.call(200);
  }
  CHECK(tried < 40'000 / 50);
}

TEST_CASE("other chunks are tried once the algorithm is settled", "[tuner]") {
  const std::string best = GENERATE("ring in long chunks", "ring in short chunks", "ring");
  World world(0.1);
  for (const Algorithm& algorithm : algorithms()) world.set(algorithm.name, 3e-3);
  world.set("ring", 1e-3);
  world.set(best, best == "ring" ? 1e-3 : 0.7e-3);
  CHECK(world.call(1000) < 120);
  CHECK(world.chosen() == best);
  CHECK(world.wanted().rival_count == 0);
  CHECK(world.call(1000) == 0);
}

TEST_CASE("sizes of a class are compared as if they were one", "[tuner]") {
  Model model(learning(), 4);
  Tuner tuner(model);
  const Algorithm& chosen = model.algorithm(Collective::allreduce, bytes);
  const Algorithm& ring = *find_algorithm(Collective::allreduce, "ring");
  REQUIRE(&chosen != &ring);
  // The rival's turn always comes with the smaller size. It is slower by a fifth.
  constexpr std::size_t smaller = bytes / 2 + kib;
  for (int i = 0; i < 40; ++i) {
    tuner.add({&chosen, Variant::usual, bytes, model.cost(chosen, bytes)});
    const double as_fast = model.cost(chosen, bytes) / model.cost(ring, bytes);
    tuner.add({&ring, Variant::usual, smaller, 1.2 * as_fast * model.cost(ring, smaller)});
  }
  CHECK(tuner.take_reasons().empty());
}

TEST_CASE("times without a meaning teach nothing", "[tuner]") {
  World world(0.1);
  const Algorithm& ring = *find_algorithm(Collective::allreduce, "ring");
  for (int i = 0; i < 100; ++i) world.tuner().add({&ring, Variant::usual, bytes, 0});
  for (int i = 0; i < 100; ++i) world.tuner().add({&ring, Variant::usual, bytes, -1});
  CHECK(world.tuner().wanted().save(world.tuner().start()).empty());
}

}  // namespace pith::test
