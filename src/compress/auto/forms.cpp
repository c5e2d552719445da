#include "compress/auto/forms.hpp"

#include <algorithm>
#include <optional>

#include "compress/scheme.hpp"

namespace pith {

namespace {

// Of forms that are qsgd: the number of the word of `bits`.
std::optional<std::uint8_t> bits_of(Form form) {
  if (form == Form::qsgd2) return 0;
  if (form == Form::qsgd4) return 1;
  if (form == Form::qsgd8) return 2;
  return std::nullopt;
}

// The others are called as their schemes.
const Scheme* find_scheme(Form form) {
  const std::string_view name = bits_of(form) ? "qsgd" : name_of(form);
  return *std::ranges::find(schemes(), name, &Scheme::name);
}

const Scheme& scheme_of(Form form) {
  static const std::array<const Scheme*, form_count> table = [] {
    std::array<const Scheme*, form_count> found{find_scheme(Form::none)};
    for (const Form one : all_forms) found[number_of(one)] = find_scheme(one);
    return found;
  }();
  return *table[number_of(form)];
}

}  // namespace

std::uint64_t usual_forms() {
  std::uint64_t bits = 0;
  for (const Form form : {Form::bf16, Form::qsgd8, Form::qsgd4, Form::topk, Form::ar_topk}) {
    bits |= std::uint64_t{1} << number_of(form);
  }
  return bits;
}

Spec spec_of(Form form) {
  Spec spec = Spec::of(scheme_of(form));
  if (const auto bits = bits_of(form)) spec.choices[0] = *bits;
  return spec;
}

void take_form(Spec& spec, Form form, double density) {
  spec.form = form;
  spec.density = density;
  if (!spec.chooses_scheme()) return;
  const Spec own = spec_of(form);
  spec.scheme = own.scheme;
  spec.choices = own.choices;
  spec.numbers = own.numbers;
}

Spec in_form(Spec spec, Form form) {
  take_form(spec, form, 1);
  return spec;
}

}  // namespace pith
