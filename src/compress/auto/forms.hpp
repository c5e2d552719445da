// What a call may be besides what its spec states: quantise= allows codings of all elements, and
// the scheme `auto` any of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pith {

struct Scheme;
struct Spec;

// Numbers are saved: new ones come last.
enum class Form : std::uint8_t {
  none,  // the stated scheme's own election or, of `auto`, a dense call
  bf16,
  qsgd8,
  qsgd4,
  fp16,
  fp8,
  int8,
  natural,
  qsgd2,
  terngrad,
  efsign,
  onebit,
  three_lc,
  topk,
  spardl,
  ok_topk,
  gtopk,
  randomk,
  ar_topk,
  exdyna,
  micro,
  deft
};
inline constexpr std::size_t number_of(Form form) { return static_cast<std::size_t>(form); }
inline constexpr std::size_t form_count = number_of(Form::deft) + 1;  // with none

inline constexpr std::array all_forms = [] {
  std::array<Form, form_count - 1> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Form>(i + 1);
  return all;
}();
// The first of these code all elements, the others elect some.
inline constexpr std::size_t coded_form_count = number_of(Form::three_lc);
inline constexpr bool is_coded(Form form) {
  return form != Form::none && number_of(form) <= coded_form_count;
}
inline constexpr bool is_elected(Form form) { return number_of(form) > coded_form_count; }

// Its word for quantise= and schemes=.
inline constexpr std::array<std::string_view, form_count> form_names = {
    "none",  "bf16",     "qsgd8",   "qsgd4",  "fp16",  "fp8",  "int8",   "natural",
    "qsgd2", "terngrad", "efsign",  "onebit", "3lc",   "topk", "spardl", "ok-topk",
    "gtopk", "randomk",  "ar-topk", "exdyna", "micro", "deft"};
inline constexpr std::string_view name_of(Form form) { return form_names[number_of(form)]; }
// That of `auto` without schemes=, by bits of their numbers.
std::uint64_t usual_forms();
// The scheme that calls in this form have, with all keys at their defaults; none: the scheme
// `none`.
Spec spec_of(Form form);
// Makes the spec's calls have this form. Of `auto` they have its scheme from then on, too.
void take_form(Spec& spec, Form form, double density);
// The spec of a call in which all elements have this form.
Spec in_form(Spec spec, Form form);

}  // namespace pith
