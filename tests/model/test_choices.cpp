// Choices by collective and size: size classes, the form in which ranks agree on them, what they
// begin with.
#include "model/choices.hpp"

#include <algorithm>
#include <span>
#include <string>

#include "collectives/registry.hpp"
#include "model/model.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

constexpr std::size_t kib = 1024;

Choices::Plan plan_of(Collective collective, std::string_view name) {
  return Choices::plan_of(*find_algorithm(collective, name));
}

Settings learning() {
  Settings settings;
  settings.learn = true;
  return settings;
}

}  // namespace

TEST_CASE("a size class ends with a power of two", "[choices]") {
  CHECK(SizeClass(0).index() == SizeClass(1).index());
  CHECK(SizeClass(kib).index() == 10);
  CHECK(SizeClass(kib + 1).index() == 11);
  CHECK(SizeClass(2 * kib).index() == 11);
  CHECK(SizeClass(2 * kib).largest() == 2 * kib);
  CHECK(SizeClass(~std::size_t{0}).index() == SizeClass::count - 1);
  for (std::size_t index = 0; index < SizeClass::count; ++index) {
    CHECK(SizeClass::of_index(index).index() == index);
  }
}

TEST_CASE("choices are saved as what differs from the start", "[choices]") {
  Choices start;
  CHECK(start.save(start).empty());
  Choices changed = start;
  Choices::Cell& cell = changed.at(Collective::allreduce, SizeClass(64 * kib));
  cell.chosen = plan_of(Collective::allreduce, "ring");
  cell.trials = Choices::Trials::seldom;
  cell.add_rival(plan_of(Collective::allreduce, "two_shot"));
  const std::string saved = changed.save(start);
  const Expected<Choices> restored = Choices::restore(start, saved, 4);
  REQUIRE(restored);
  CHECK(restored->at(Collective::allreduce, SizeClass(40 * kib)) == cell);
  CHECK(restored->at(Collective::allreduce, SizeClass(32 * kib)) == Choices::Cell());
  CHECK(restored->save(start) == saved);
  // Back to the start is a change, too.
  CHECK(Choices::restore(start, "", 4)->save(start).empty());

  for (std::size_t size = 1; size < saved.size(); ++size) {
    CHECK_FALSE(Choices::restore(start, saved.substr(0, size), 4));
  }
}

TEST_CASE("choices that no rank can make are refused", "[choices]") {
  const Choices start;
  const auto saved = [&](auto change) {
    Choices choices;
    Choices::Cell& cell = choices.at(Collective::allreduce, SizeClass(8));
    cell.chosen = plan_of(Collective::allreduce, "ring");
    change(cell);
    return choices.save(start);
  };
  const auto is_refused = [&](auto change, int ranks) {
    return !Choices::restore(start, saved(change), ranks);
  };
  using Cell = Choices::Cell;
  const Choices::Plan two_shot = plan_of(Collective::allreduce, "two_shot");
  CHECK_FALSE(is_refused([](Cell&) {}, 100));
  CHECK(is_refused([&](Cell& cell) { cell.chosen = two_shot; }, 100));
  CHECK(is_refused([&](Cell& cell) { cell.add_rival(two_shot); }, 100));
  CHECK_FALSE(is_refused([&](Cell& cell) { cell.add_rival(two_shot); }, 8));
  CHECK(is_refused([](Cell& cell) { cell.chosen = plan_of(Collective::broadcast, "chain"); }, 2));
  CHECK(is_refused([](Cell& cell) { cell.chosen = 200; }, 2));
  CHECK(is_refused([](Cell& cell) { cell.rival_count = 200; }, 2));
}

TEST_CASE("an algorithm and its variant are one plan, which is told in words", "[choices]") {
  const Algorithm& ring = *find_algorithm(Collective::allreduce, "ring");
  const Choices::Plan plan = Choices::plan_of(ring, Variant::long_chunks);
  CHECK(&Choices::algorithm_of(plan) == &ring);
  CHECK(Choices::variant_of(plan) == Variant::long_chunks);
  CHECK(plan != Choices::plan_of(ring));
  CHECK(plan < Choices::plan_count());
  CHECK(Choices::text_of(plan) == "ring in long chunks");
  CHECK(Choices::text_of(Choices::plan_of(ring)) == "ring");
}

TEST_CASE("a variant changes the tuning", "[choices]") {
  Tuning tuning;
  tuning.chunk_bytes = 64 * kib;
  CHECK(varied(tuning, Variant::usual).chunk_bytes == 64 * kib);
  CHECK_FALSE(varied(tuning, Variant::usual).copies);
  CHECK(varied(tuning, Variant::copies).copies);
  CHECK(varied(tuning, Variant::long_chunks).chunk_bytes == 256 * kib);
  CHECK(varied(tuning, Variant::short_chunks).chunk_bytes == 16 * kib);
  tuning.chunk_bytes = 1;
  CHECK(varied(tuning, Variant::short_chunks).chunk_bytes == 1);
}

TEST_CASE("rivals leave in any order, and no more than fit are kept", "[choices]") {
  Choices::Cell cell;
  for (Choices::Plan place = 1; place <= 11; ++place) cell.add_rival(place);
  CHECK(cell.rival_count == cell.rivals.size());
  cell.remove_rival(2);
  cell.remove_rival(11);
  CHECK(cell.rival_count == cell.rivals.size() - 1);
  CHECK(cell.rivals[1] == 3);
  Choices::Cell other;
  for (const int place : {1, 3, 4, 5, 6, 7, 8}) other.add_rival(static_cast<Choices::Plan>(place));
  CHECK(cell == other);
}

TEST_CASE("a model that learns begins with rivals of its own choice", "[choices]") {
  const Model model(learning(), 4);
  const Choices start = model.start();
  for (const std::size_t bytes : {std::size_t{8}, 64 * kib, 16 * kib * kib}) {
    const Choices::Cell& cell = start.at(Collective::allreduce, SizeClass(bytes));
    CHECK(cell.chosen == Choices::by_model);
    CHECK(cell.rival_count > 0);
    const Algorithm& chosen = model.algorithm(Collective::allreduce, bytes);
    for (std::size_t i = 0; i < cell.rival_count; ++i) {
      CHECK(&Choices::algorithm_of(cell.rivals[i]) != &chosen);
      CHECK(model.cost(Choices::algorithm_of(cell.rivals[i]), bytes) <=
            3 * model.cost(chosen, bytes));
    }
  }
  const auto copying = [](std::size_t bytes, bool views) {
    Model one(learning(), 4);
    one.set_views(views);
    const Choices start_of_it = one.start();
    const Choices::Cell& cell = start_of_it.at(Collective::allreduce, SizeClass(bytes));
    return std::ranges::count_if(std::span(cell.rivals).first(cell.rival_count), [](auto rival) {
      return Choices::variant_of(rival) == Variant::copies;
    });
  };
  CHECK(copying(64 * kib, true) == 1);
  CHECK(copying(kib, true) == 0);
  CHECK(copying(64 * kib, false) == 0);
  const auto rivals = [](const Model& one, Collective collective) {
    return one.start().at(collective, SizeClass(64 * kib)).rival_count;
  };
  CHECK(rivals(model, Collective::barrier) == 0);
  Settings constant;
  constant.learn = false;
  CHECK(rivals(Model(constant, 4), Collective::allreduce) == 0);
  Settings deterministic = learning();
  deterministic.deterministic = true;
  CHECK(rivals(Model(deterministic, 4), Collective::allreduce) == 0);
  Model forced(learning(), 4);
  REQUIRE_FALSE(forced.force("allreduce:ring"));
  CHECK(rivals(forced, Collective::allreduce) == 0);
  CHECK(rivals(forced, Collective::allgather) > 0);
  CHECK(rivals(model, Collective::broadcast) > 0);
  Model devices(learning(), 4);
  devices.set_devices(true);
  CHECK(rivals(devices, Collective::allreduce) == 0);
}

}  // namespace pith::test
