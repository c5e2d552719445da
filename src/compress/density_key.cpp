#include "compress/density_key.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "compress/scheme.hpp"

namespace pith {

namespace {

constexpr std::uint64_t mark = std::uint64_t{1} << 63;

float least_of(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>((bits & ~mark) >> 32));
}
float most_of(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

Candidates even_candidates(const Spec& spec) {
  Candidates all;
  all.count = most_candidates;
  const double least = spec.least_density;
  const double ratio = double(spec.most_density) / least;
  for (std::size_t i = 0; i < all.count; ++i) {
    const double density = least * std::pow(ratio, double(i) / double(all.count - 1));
    all.densities[i] = std::min(density, double(spec.most_density));
  }
  return all;
}

Candidates paper_candidates(const Spec& spec) {
  constexpr std::array<float, 5> authors = {0.001F, 0.004F, 0.011F, 0.033F, 0.1F};
  Candidates all;
  const auto add = [&](float density) { all.densities[all.count++] = double(density); };
  add(spec.least_density);
  for (const float density : authors) {
    if (density > spec.least_density && density < spec.most_density) add(density);
  }
  add(spec.most_density);
  return all;
}

// Of several the one that loses little for a quarter of the bytes; of an `auto` without it the
// first that is allowed.
Form first_form(const Spec& spec) {
  if (spec.may_take(Form::qsgd8)) return Form::qsgd8;
  const auto found = std::ranges::find_if(all_forms, [&](Form one) { return spec.may_take(one); });
  return found == all_forms.end() ? Form::none : *found;
}

}  // namespace

Candidates candidates_of(const Spec& spec) {
  return spec.objective == Objective::paper ? paper_candidates(spec) : even_candidates(spec);
}

std::uint64_t density_range(float least, float most) {
  return mark | std::uint64_t{std::bit_cast<std::uint32_t>(least)} << 32 |
         std::bit_cast<std::uint32_t>(most);
}

std::uint64_t density_bits(const Spec& spec) {
  return spec.adapts() ? density_range(spec.least_density, spec.most_density)
                       : std::bit_cast<std::uint64_t>(spec.density);
}

void set_density(Spec& spec, std::uint64_t bits) {
  if ((bits & mark) == 0) {
    spec.density = std::bit_cast<double>(bits);
    spec.least_density = spec.most_density = 0;
    return;
  }
  spec.least_density = least_of(bits);
  spec.most_density = most_of(bits);
  follow(spec, {});
}

void follow(Spec& spec, const DensityControl& agreed) {
  if (!spec.adapts()) return;
  if (agreed.density > 0) return take_form(spec, agreed.form, agreed.density);
  spec = beginning_in(spec, first_form(spec));
}

Spec beginning_in(Spec spec, Form form) {
  take_form(spec, form, 1);
  const Candidates all = candidates_of(spec);
  if (!is_coded(form)) spec.density = all[all.nearest(spec.scheme->density)];
  return spec;
}

std::string density_text(std::uint64_t bits) {
  if (bits == usual_density_range()) return "auto";
  if ((bits & mark) == 0) return fmt::format("{}", std::bit_cast<double>(bits));
  return fmt::format("{}{}{}", least_of(bits), range_separator, most_of(bits));
}

}  // namespace pith
