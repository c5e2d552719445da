#include "model/choices.hpp"

#include <fmt/format.h>

#include "collectives/registry.hpp"
#include "core/packing.hpp"

namespace pith {

namespace {

static_assert(variant_count * algorithm_table.size() < Choices::by_model);

bool can_serve(Choices::Plan plan, std::size_t collective, int ranks) {
  if (plan >= Choices::plan_count()) return false;
  const Algorithm& algorithm = Choices::algorithm_of(plan);
  return static_cast<std::size_t>(algorithm.collective) == collective &&
         ranks <= algorithm.ranks_max;
}

bool is_valid(const Choices::Cell& cell, std::size_t collective, int ranks) {
  if (cell.rival_count > cell.rivals.size() || cell.trials > Choices::Trials::often) return false;
  const auto rivals = std::span(cell.rivals).first(cell.rival_count);
  return (cell.chosen == Choices::by_model || can_serve(cell.chosen, collective, ranks)) &&
         std::ranges::all_of(rivals,
                             [&](auto rival) { return can_serve(rival, collective, ranks); });
}

}  // namespace

Choices::Plan Choices::plan_of(const Algorithm& algorithm, Variant variant) {
  const auto place = static_cast<std::size_t>(&algorithm - algorithms().data());
  return static_cast<Plan>(static_cast<std::size_t>(variant) * algorithms().size() + place);
}

std::string Choices::text_of(Plan plan) {
  const std::string_view name = algorithm_of(plan).name;
  const std::string_view variant = name_of(variant_of(plan));
  return variant.empty() ? std::string(name) : fmt::format("{} {}", name, variant);
}

void Choices::Cell::add_rival(Plan plan) {
  const auto end = rivals.begin() + rival_count;
  if (end != rivals.end() && std::find(rivals.begin(), end, plan) == end)
    rivals[rival_count++] = plan;
}

void Choices::Cell::remove_rival(Plan plan) {
  const auto end = rivals.begin() + rival_count;
  const auto left = std::remove(rivals.begin(), end, plan);
  std::fill(left, end, Plan{0});
  rival_count = static_cast<std::uint8_t>(left - rivals.begin());
}

std::string Choices::save(const Choices& start) const {
  Packer packer;
  for (std::size_t collective = 0; collective < collective_count; ++collective) {
    for (std::size_t size = 0; size < SizeClass::count; ++size) {
      const Cell& cell = cells_[collective][size];
      if (cell == start.cells_[collective][size]) continue;
      packer.value(static_cast<std::uint8_t>(collective)).value(static_cast<std::uint8_t>(size));
      packer.value(cell.chosen).value(cell.trials).value(cell.rival_count).value(cell.rivals);
    }
  }
  return packer.take();
}

Expected<Choices> Choices::restore(const Choices& start, std::string_view text, int ranks) {
  Choices choices = start;
  for (Unpacker in(text); !in.empty();) {
    const auto collective = in.value<std::uint8_t>();
    const auto size = in.value<std::uint8_t>();
    Cell cell;
    cell.chosen = in.value<Plan>();
    cell.trials = in.value<Trials>();
    cell.rival_count = in.value<std::uint8_t>();
    cell.rivals = in.value<decltype(cell.rivals)>();
    const bool exists = in.whole() && collective < collective_count && size < SizeClass::count;
    if (!exists || !is_valid(cell, collective, ranks)) {
      return Error(Code::remote, "the parameters of an epoch are no choices of this library");
    }
    choices.cells_[collective][size] = cell;
  }
  return choices;
}

}  // namespace pith
