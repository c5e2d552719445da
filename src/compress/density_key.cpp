#include "compress/density_key.hpp"

#include <fmt/format.h>

#include <bit>

#include "compress/scheme.hpp"

namespace pith {

namespace {

constexpr std::uint64_t mark = std::uint64_t{1} << 63;

float least_of(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>((bits & ~mark) >> 32));
}
float most_of(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

}  // namespace

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
    return;
  }
  spec.least_density = least_of(bits);
  spec.most_density = most_of(bits);
  spec.density = density_of(spec, {});
}

double density_of(const Spec& spec, const DensityControl& control) {
  if (!spec.adapts()) return spec.density;
  if (control.density > 0) return control.density;
  return candidate_density(spec, nearest_candidate(spec, spec.scheme->density));
}

std::string density_text(std::uint64_t bits) {
  if (bits == usual_density_range()) return "auto";
  if ((bits & mark) == 0) return fmt::format("{}", std::bit_cast<double>(bits));
  return fmt::format("{}{}{}", least_of(bits), range_separator, most_of(bits));
}

}  // namespace pith
