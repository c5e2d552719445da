// What is learnt from the times of calls, made up here: every algorithm has a true time, and calls
// take it with noise.
#include "model/tuner.hpp"

#include <map>
#include <string>

#include "collectives/registry.hpp"
#include "model/cheapest.hpp"
#include "model/turn.hpp"
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

// Counts calls as CallPlanner does.
class Counter {
 public:
  Turn turn(const Choices::Cell& cell, const CallRun& run) {
    if (cell != last_) since_ = count_;
    last_ = cell;
    return Turns(cell, WhoseTime::everyones, run, since_).at(count_++);
  }

 private:
  Choices::Cell last_;
  std::uint32_t count_ = 0;
  std::uint32_t since_ = 0;
};

// Calls of allreduce by 4 ranks.
class World {
 public:
  explicit World(double noise, double late = 0.05) : noise_(3, noise, late) {}

  // By Choices::text_of.
  void set(std::string_view plan, double seconds) { true_s_[std::string(plan)] = seconds; }
  // How many calls were made by a rival.
  int call(int count) {
    int rivals = 0;
    for (int i = 0; i < count; ++i) {
      const Turn turn = counter_.turn(wanted(), long_calls);
      const bool is_rival = turn.of == TurnOf::rival;
      rivals += is_rival;
      time(is_rival ? turn.rival : chosen_plan(), is_rival);
    }
    return rivals;
  }
  std::string chosen() const { return Choices::text_of(chosen_plan()); }
  const Choices::Cell& wanted() const {
    return tuner_.wanted().at(Collective::allreduce, SizeClass(bytes));
  }
  Tuner& tuner() { return tuner_; }
  std::string reasons() {
    std::string all;
    for (const std::string& one : tuner_.take_reasons()) all += one + "\n";
    for (std::size_t i = 0; i < wanted().rival_count; ++i) {
      all += Choices::text_of(wanted().rivals[i]) + " is a rival\n";
    }
    return all;
  }

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
  void time(Choices::Plan plan, bool is_rival) {
    const auto known = true_s_.find(Choices::text_of(plan));
    tuner_.add({&Choices::algorithm_of(plan), Choices::variant_of(plan), bytes,
                noise_.of(known == true_s_.end() ? 5e-3 : known->second), 0, is_rival});
  }

  Model model_{learning(), 4};
  Tuner tuner_{sharing_memory(model_)};
  Noise noise_;
  std::map<std::string, double> true_s_;
  Counter counter_;
};

// Calls whose true times are their costs on a link, a tenth more for some algorithms aside.
class LinkWorld {
 public:
  LinkWorld(int ranks, const LinkCost& link) : model_(learning(), ranks), link_(link) {}

  void set(const LinkCost& link) { link_ = link; }
  // A call that is made by another algorithm than the one before leaves most of its time to the
  // next.
  void run_ahead() { runs_ahead_ = true; }
  // In each call, or one in so many, for a rank that computes longer.
  void wait(double seconds, int one_in = 1) {
    waiting_s_ = seconds;
    wait_one_in_ = one_in;
  }
  const LinkCost& found() const { return tuner_.link(); }
  // How much longer they take than all by the best algorithm would.
  double call(std::size_t size, int count) {
    double taken = 0;
    for (int i = 0; i < count; ++i) {
      const CallRun run = run_of(Collective::allreduce, size, model_.link());
      const Turn turn = counters_[size].turn(cell(size), run);
      const Choices::Plan plan = turn.of == TurnOf::rival ? turn.rival : chosen(size);
      const double waits_s = i % wait_one_in_ == 0 ? waiting_s_ : 0;
      const double seen_s = waits_s + noise_.of(seen_seconds(plan, size));
      taken += seconds(plan, size);
      if (run.is_one_time() && turn.of == TurnOf::choice) continue;  // not timed
      tuner_.add({&Choices::algorithm_of(plan), Choices::variant_of(plan), size, seen_s,
                  waits_s > 0 ? 1e-3 : 0, turn.of == TurnOf::rival});
    }
    return taken / count / least(size) - 1;
  }
  std::string text(std::size_t size) {
    std::string all = Choices::text_of(chosen(size));
    for (const std::string& one : tuner_.take_reasons()) all += "\n" + one;
    return all;
  }
  std::string first_rival(std::size_t size) const {
    return cell(size).rival_count == 0 ? "" : Choices::text_of(cell(size).rivals[0]);
  }
  // Its true time is so many times its cost.
  void mislead(const Algorithm& algorithm, double factor) { misled_ = {&algorithm, factor}; }
  // How much longer the choice takes than the best algorithm would.
  double regret(std::size_t size) const { return seconds(chosen(size), size) / least(size) - 1; }

 private:
  const Choices::Cell& cell(std::size_t size) const {
    return tuner_.wanted().at(Collective::allreduce, SizeClass(size));
  }
  Choices::Plan chosen(std::size_t size) const {
    if (cell(size).chosen != Choices::by_model) return cell(size).chosen;
    return Choices::plan_of(model_.algorithm(Collective::allreduce, size));
  }
  double least(std::size_t size) const {
    double least = 1e9;
    for (const Algorithm& one : algorithms()) {
      if (one.collective != Collective::allreduce || !serves(one, model_.shape(size))) continue;
      least = std::min(least, seconds(Choices::plan_of(one), size));
    }
    return least;
  }
  double seconds(Choices::Plan plan, std::size_t size) const {
    const std::size_t which = plan % algorithms().size() + plan / algorithms().size();
    const double usual = which % 2 == 0 ? 1 : 1.1;  // whatever the table's length
    const double wrong = &Choices::algorithm_of(plan) == misled_.first ? misled_.second : usual;
    return wrong *
           model_.cost(Choices::algorithm_of(plan), size, Choices::variant_of(plan), &link_);
  }

  double seen_seconds(Choices::Plan plan, std::size_t size) {
    const double own = seconds(plan, size);
    const bool leaves = runs_ahead_ && plan != std::exchange(last_, plan);
    const double left = leaves ? 0.7 * own : 0;
    return own - left + std::exchange(left_s_, left);
  }

  Model model_;
  LinkCost link_;
  bool runs_ahead_ = false;
  Choices::Plan last_ = Choices::by_model;
  double left_s_ = 0;
  double waiting_s_ = 0;
  int wait_one_in_ = 1;
  std::pair<const Algorithm*, double> misled_;
  Tuner tuner_{model_};
  Noise noise_{7, 0.1, 0.02};
  std::map<std::size_t, Counter> counters_;
};

}  // namespace

TEST_CASE("the fastest algorithm becomes the choice, and the others are given up", "[tuner]") {
  const std::string best = GENERATE("ring", "rabenseifner", "two_shot", "two_shot by copies");
  World world(0.1);
  world.set(best, 1e-3);
  world.set("double_tree", 1.5e-3);
  const int tried = world.call(600);
  CAPTURE(world.reasons(), tried);
  CHECK(world.chosen() == best);
  CHECK(world.wanted().rival_count == 0);
  CHECK(tried < 80);
  CHECK(world.call(1000) == 0);
}

TEST_CASE("algorithms that are as fast do not take turns", "[tuner]") {
  World world(0.1);
  for (const Algorithm& algorithm : algorithms()) world.set(algorithm.name, 1e-3);
  world.call(2000);
  CHECK(world.wanted().rival_count == 0);
  const std::size_t changes = world.tuner().take_reasons().size();
  CHECK(changes <= 1);
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
  const int noticed = 8;
  const int rivals = world.call(noticed + 20);
  CHECK(rivals >= 8);  // half of the calls: the choice is a guess
  world.call(280);
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
  model.set_views(true);
  Tuner tuner(model);
  const Algorithm& chosen = model.algorithm(Collective::allreduce, bytes);
  const Algorithm& ring = *find_algorithm(Collective::allreduce, "ring");
  REQUIRE(&chosen != &ring);
  const auto by_copies = Choices::plan_of(chosen, Variant::copies);
  REQUIRE(tuner.wanted().at(Collective::allreduce, SizeClass(bytes)).chosen == by_copies);
  // The rival's turn always comes with the smaller size. It is slower by a fifth.
  constexpr std::size_t smaller = bytes / 2 + kib;
  for (int i = 0; i < 40; ++i) {
    tuner.add({&chosen, Variant::copies, bytes, model.cost(chosen, bytes)});
    const double as_fast = model.cost(chosen, bytes) / model.cost(ring, bytes);
    tuner.add({&ring, Variant::usual, smaller, 1.2 * as_fast * model.cost(ring, smaller)});
  }
  CHECK(tuner.take_reasons().empty());
}

TEST_CASE("calls tell what messages cost, and choices of all sizes follow at once", "[tuner]") {
  const LinkCost truth = GENERATE(link_with(20e-6, 80e-9), link_with(10e-3, 8e-9));
  LinkWorld world(4, truth);
  world.call(kib, truth.alpha < nominal::distant_alpha ? 700 : 40);  // a run in 16 is timed
  world.call(1024 * kib, 40);
  for (const std::size_t size : {std::size_t{8}, kib, 32 * kib, 1024 * kib, 16 * 1024 * kib}) {
    CAPTURE(size, truth.alpha, truth.beta, world.text(size));
    CHECK(world.regret(size) < 0.15);
  }
}

TEST_CASE("a choice by the link's fit that was wrong is taken back", "[tuner]") {
  const LinkCost truth = link_with(20e-6, 80e-9);
  LinkWorld world(8, truth);
  const Model model(learning(), 8);
  world.mislead(cheapest_algorithm(model.shape(1024 * kib), Collective::allreduce, truth), 3);
  world.call(1024 * kib, 150);
  CAPTURE(world.text(1024 * kib));
  CHECK(world.regret(1024 * kib) < 0.15);
}

TEST_CASE("what single calls leave to the next does not decide", "[tuner]") {
  LinkWorld world(4, link_with(20e-6, 0.8e-9));
  world.run_ahead();
  const std::size_t size = GENERATE(8, kib, 16 * kib, 64 * kib, 256 * kib, 1024 * kib);
  world.call(size, 10'000);
  CAPTURE(size, world.text(size));
  CHECK(world.regret(size) < 0.15);
}

TEST_CASE("a rank that is waited for is no slow link", "[tuner]") {
  LinkWorld world(4, link_with(20e-6, 0.8e-9));
  world.wait(20e-3);
  world.call(1024 * kib, 200);
  world.wait(100e-3);
  world.call(1024 * kib, 200);
  CHECK(world.found().alpha == 20e-6);
  CHECK(world.found().beta == 0.8e-9);
  world.wait(2e-3, 10);  // once in an iteration of ten short calls
  world.call(kib, 20'000);
  CHECK(world.found().alpha == 20e-6);
}

// A step that changes a call's time by less than half may go unnoticed.
TEST_CASE("soon after a step of the link calls are nearly as fast as they can be", "[tuner]") {
  struct Step {
    LinkCost before;
    LinkCost after;
    std::size_t size;
  };
  const auto near = link_with(20e-6, 0.8e-9);
  const auto far = link_with(5e-3, 8e-9);
  const Step step = GENERATE_COPY(
      Step{near, link_with(5e-3, 0.8e-9), 4 * kib}, Step{near, link_with(5e-3, 0.8e-9), 128 * kib},
      Step{near, link_with(5e-3, 0.8e-9), 1024 * kib}, Step{far, link_with(50e-6, 8e-9), 4 * kib},
      Step{far, link_with(50e-6, 8e-9), 1024 * kib}, Step{near, link_with(20e-6, 80e-9), 128 * kib},
      Step{near, link_with(20e-6, 80e-9), 1024 * kib},
      Step{link_with(1e-3, 80e-9), link_with(1e-3, 0.8e-9), 1024 * kib});
  LinkWorld world(8, step.before);
  world.call(step.size, 2000);
  CHECK(world.regret(step.size) < 0.15);
  world.set(step.after);
  // Of short calls on near links a run in 16 is timed.
  world.call(step.size, step.size < long_bytes ? 700 : 20);
  CAPTURE(step.size, step.before.alpha, step.before.beta, step.after.alpha, step.after.beta,
          world.text(step.size));
  CHECK(world.regret(step.size) < 0.15);
}

TEST_CASE("after a step between calls that wait, algorithms for another link are tried",
          "[tuner]") {
  LinkWorld world(4, link_with(20e-6, 8e-9));
  world.wait(1e-6);  // long enough not to be prompt
  world.call(256 * kib, 1000);
  REQUIRE(world.regret(256 * kib) < 0.15);
  world.set(link_with(5e-3, 8e-9));
  world.call(256 * kib, 60);
  CAPTURE(world.text(256 * kib));
  CHECK(world.regret(256 * kib) < 0.15);
}

// Five of the calls notice the step. All rivals in turn would cost several times as much.
TEST_CASE("what cannot be best on the link as it may be now is not tried", "[tuner]") {
  const auto before = link_with(1e-3, 0.8e-9);
  const auto after = GENERATE(link_with(1e-3, 80e-9), link_with(20e-3, 0.8e-9));
  const std::size_t size = GENERATE(64 * kib, 1024 * kib);
  LinkWorld world(4, before);
  world.wait(GENERATE(0.0, 1e-6));  // prompt or not
  world.call(size, 1000);
  REQUIRE(world.regret(size) < 0.15);
  world.set(after);
  world.call(size, 5);
  CHECK(world.first_rival(size) == "two_shot");  // gains most if bytes take longer
  const double more = world.call(size, 64);      // two turns of a rival
  CAPTURE(size, after.alpha, after.beta, more, world.text(size));
  CHECK(more < 0.2);
  CHECK(world.regret(size) < 0.15);
}

TEST_CASE("a step has nothing tried where nothing may be", "[tuner]") {
  enum class Why : std::uint8_t { forced, only_recorded, too_large };
  const Why why = GENERATE(Why::forced, Why::only_recorded, Why::too_large);
  Settings settings = learning();
  settings.learn = why != Why::only_recorded;
  Model model(settings, 4);
  REQUIRE_FALSE(model.force(why == Why::forced ? "allreduce:ring" : ""));
  const std::size_t size = why == Why::too_large ? 512 * 1024 * kib : 1024 * kib;
  const Algorithm& chosen = model.algorithm(Collective::allreduce, size);
  for (const double gap_s : {0.0, 1.0}) {
    Tuner tuner(model);
    const double usual = model.cost(chosen, size);
    for (int i = 0; i < 60; ++i) {
      tuner.add({&chosen, Variant::usual, size, i < 30 ? usual : 10 * usual, gap_s});
    }
    CAPTURE(static_cast<int>(why), gap_s);
    CHECK(tuner.wanted().at(Collective::allreduce, SizeClass(size)).rival_count == 0);
  }
}

TEST_CASE("times without a meaning teach nothing", "[tuner]") {
  World world(0.1);
  const Algorithm& ring = *find_algorithm(Collective::allreduce, "ring");
  for (int i = 0; i < 100; ++i) world.tuner().add({&ring, Variant::usual, bytes, 0});
  for (int i = 0; i < 100; ++i) world.tuner().add({&ring, Variant::usual, bytes, -1});
  CHECK(world.tuner().wanted().save(world.tuner().start()).empty());
}

}  // namespace pith::test
