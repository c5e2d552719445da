#include "compress/scheme_keys.hpp"

namespace pith {

namespace {

// Of a spec that is read while it is written words may be unknown, or none.
void allow(Spec& spec, std::uint64_t words) {
  constexpr std::uint64_t known = (std::uint64_t{1} << all_forms.size()) - 1;
  if ((words & known) != 0) spec.allowed = (words & known) << 1;
}

constexpr Key allowed_schemes{.name = "schemes",
                              .words = std::span(form_names).subspan(1),
                              .get = [](const Spec& spec) { return spec.allowed >> 1; },
                              .set = allow,
                              .kind = Key::Kind::set};
constexpr std::array auto_keys{allowed_schemes, keys::density, keys::weight,    keys::values,
                               keys::feedback,  keys::bypass,  keys::nonfinite, keys::seed};

}  // namespace

// Calls have the schemes of their forms, see forms.hpp, and never this one.
constinit const Scheme auto_scheme{.name = "auto",
                                   .summary = "chooses among schemes, densities and bits, by time",
                                   .electors = Electors::as_chosen,
                                   .exchange = "dense",
                                   .keys = auto_keys};

}  // namespace pith
