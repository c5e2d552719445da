#include "compress/auto/forms.hpp"

#include "compress/scheme.hpp"

namespace pith {

extern const Scheme bf16_scheme;
extern const Scheme fp16_scheme;
extern const Scheme int8_scheme;
extern const Scheme fp8_scheme;
extern const Scheme qsgd_scheme;
extern const Scheme terngrad_scheme;
extern const Scheme natural_scheme;
extern const Scheme efsign_scheme;
extern const Scheme onebit_scheme;
extern const Scheme three_lc_scheme;
extern const Scheme topk_scheme;
extern const Scheme spardl_scheme;
extern const Scheme ok_topk_scheme;
extern const Scheme gtopk_scheme;
extern const Scheme random_k_scheme;
extern const Scheme ar_topk_scheme;
extern const Scheme exdyna_scheme;
extern const Scheme micro_scheme;
extern const Scheme deft_scheme;

namespace {

constexpr std::uint8_t usual = 255;
struct Entry {
  const Scheme* scheme;
  std::uint8_t bits = usual;  // the number of its word
};

constexpr std::array<Entry, form_count> table = {
    {{&none_scheme},    {&bf16_scheme},   {&qsgd_scheme, 2},  {&qsgd_scheme, 1}, {&fp16_scheme},
     {&fp8_scheme},     {&int8_scheme},   {&natural_scheme},  {&qsgd_scheme, 0}, {&terngrad_scheme},
     {&efsign_scheme},  {&onebit_scheme}, {&three_lc_scheme}, {&topk_scheme},    {&spardl_scheme},
     {&ok_topk_scheme}, {&gtopk_scheme},  {&random_k_scheme}, {&ar_topk_scheme}, {&exdyna_scheme},
     {&micro_scheme},   {&deft_scheme}}};

}  // namespace

std::uint64_t usual_forms() {
  std::uint64_t bits = 0;
  for (const Form form : {Form::bf16, Form::qsgd8, Form::qsgd4, Form::topk, Form::ar_topk}) {
    bits |= std::uint64_t{1} << number_of(form);
  }
  return bits;
}

Spec spec_of(Form form) {
  const Entry& entry = table[number_of(form)];
  Spec spec = Spec::of(*entry.scheme);
  if (entry.bits != usual) spec.choices[0] = entry.bits;
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
