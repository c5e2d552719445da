// What a model makes of the links that a job was given.
#include "model/known_links.hpp"

#include <memory>

#include "model/model.hpp"
#include "model/nominal.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

KnownLinks all_known() { return {{1e-7, 1e-11}, {2e-6, 2e-10}, {3e-4, 3e-9}, {4e-4, 4e-9}, 5e-10}; }

std::unique_ptr<Model> between_hosts(const Settings& settings = {}) {
  auto model = std::make_unique<Model>(settings, 4);
  model->set_views(false);
  model->set_hosts(4, 1);
  return model;
}

Settings pinned_settings() {
  Settings settings;
  settings.deterministic = true;
  return settings;
}

}  // namespace

TEST_CASE("a model begins with the links of an earlier run", "[known_links]") {
  const auto calls = between_hosts();
  const std::size_t chunk = calls->tuning().chunk_bytes;
  calls->set_known(all_known());
  CHECK(calls->link().alpha == 4e-4);
  CHECK(calls->link().beta == 4e-9);
  CHECK(calls->link().gamma == 5e-10);
  CHECK(calls->tuning().start_bytes == Approx(1e5));
  CHECK(calls->tuning().chunk_bytes == chunk);

  KnownLinks known = all_known();
  known.calls = {};
  const auto paths = between_hosts();
  paths->set_known(known);
  CHECK(paths->link().alpha == 3e-4);
  const auto messages = between_hosts();
  messages->set_hosts(1, 4);
  messages->set_known(known);
  CHECK(messages->link().alpha == 2e-6);

  Model views(4);
  views.set_views(true);
  views.set_known(known);
  CHECK(views.link().alpha == 1e-7);
  CHECK(views.link().message == 5e-8);
  CHECK(views.link().gamma == 5e-10);
}

TEST_CASE("what is not known stays nominal", "[known_links]") {
  const auto model = between_hosts();
  model->set_known(KnownLinks());
  CHECK(model->link().alpha == nominal::wire.alpha);
  KnownLinks known;
  known.gamma = 1e-9;
  model->set_known(known);
  CHECK(model->link().beta == nominal::wire.beta);
  CHECK(model->link().gamma == 1e-9);
  const auto pinned = between_hosts(pinned_settings());
  pinned->set_known(all_known());
  CHECK(pinned->link().alpha == nominal::wire.alpha);
  CHECK(pinned->link().gamma == nominal::wire.gamma);
}

TEST_CASE("a link that is farther than it was is known by its round trip", "[known_links]") {
  const auto model = between_hosts();
  model->set_round_trip(40e-3);
  const double alpha = model->link().alpha;
  model->set_known(all_known());
  CHECK(model->link().alpha == alpha);
  CHECK(model->link().beta == 4e-9);
}

TEST_CASE("choices follow the links that are known", "[known_links]") {
  const auto model = between_hosts();
  const std::size_t bytes = 64 << 10;
  const Algorithm& before = model->algorithm(Collective::allreduce, bytes);
  KnownLinks known;
  known.calls = {20e-3, 1e-10};
  model->set_known(known);
  CHECK(&model->algorithm(Collective::allreduce, bytes) != &before);
}

}  // namespace pith::test
