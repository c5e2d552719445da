// A compression scheme as an entry of the table of schemes (schemes.cpp). Code that treats schemes
// differently uses the entry's properties and never asks which scheme it is; see SCHEMES.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "compress/spec.hpp"
#include "core/sparse/coding.hpp"
#include "core/sparse/varying_coding.hpp"

namespace pith {

// A key of a scheme, and how its value is stored in a spec.
struct Key {
  enum class Kind : std::uint8_t { word, set, integer, real, density };

  std::string_view name;
  std::span<const std::string_view> words = {};  // the allowed values; empty: a number
  // The stored value: a word's number, the bits of the numbers of a set's words, which the text
  // joins by `+`, or a real number's bits.
  std::uint64_t (*get)(const Spec& spec) = nullptr;
  void (*set)(Spec& spec, std::uint64_t value) = nullptr;
  // For numbers: the range, with `least` exclusive for reals and `most` inclusive, and its
  // description.
  Kind kind = Kind::word;
  double least = 0;
  double most = 0;
  std::string_view expected = {};
};

// Which ranks elect the elements that a call sends.
enum class Electors : std::uint8_t {
  nobody,            // all elements are sent
  each_rank,         // its own k largest: lists differ between ranks
  each_by_rule,      // so many as its rule says: lists differ, and so do their lengths
  leader,            // one rank, for all of them
  owners,            // each rank in its own part, for all of them
  each_then_owners,  // each_rank; of the sums each rank those of its own part that are delivered
  each_then_pairs,   // each_rank; of two ranks' sums one of them those that go on
  all_alike,         // every rank alike, so that no index is sent
  as_chosen,         // as those of the schemes that it allows, see auto/forms.hpp
};

// How momentum is corrected, see momentum/velocity.hpp.
struct Correction {
  float momentum = 0;
  float clip = 0;  // most of the norm of all ranks' gradients together; 0: any
};

// Elements that may be sent without being elected.
struct Unelected {
  std::size_t dummies = 0;   // maximum number in a call
  bool whole_parts = false;  // parts that are sent whole
};

struct SchemeState;
class StateWriter;
class StateReader;
// Spec and vector length of the compressor whose state is read.
struct StateShape {
  const Spec& spec;
  std::size_t count;
};
// A named part of a scheme's state as bytes.
struct StateSection {
  std::string_view name;
  void (*save)(const SchemeState& state, StateWriter& out);
  // False: the bytes are invalid. Unread bytes are an error, too.
  bool (*load)(SchemeState& state, const StateShape& shape, StateReader& in);
};

// What checks of results have to know.
struct SchemeChecks {
  // What is sent without being elected; null: nothing.
  Unelected (*unelected)(const Spec& spec, int ranks) = nullptr;
  // Of `leader` schemes: whether the rank may lead this step, by the squares of what each rank
  // would send.
  bool (*may_lead)(const Spec& spec, std::uint64_t step, std::span<const double> squares,
                   std::size_t leader) = nullptr;
};

// How the first calls differ from the others.
struct WarmUp {
  // The number of calls that are dense before the first one that is not; null: none.
  std::uint64_t (*dense_calls)(const Spec& spec) = nullptr;
  // The density of the call of this step, the largest first; null: it is the spec's.
  double (*density_at)(const Spec& spec, std::uint64_t step) = nullptr;
};

struct Scheme {
  std::string_view name;
  std::string_view summary;  // one line, for users
  Electors electors = Electors::nobody;
  std::string_view exchange;  // name of its coroutine in collectives/exchanges.cpp
  std::span<const Key> keys = {};
  // Defaults before keys are read.
  double density = 0;
  DType values = DType::f32;
  Spec::Choices choices = {};
  Spec::Numbers numbers = {};
  bool feedback = true;
  // Of the exchange `coded`: how values are coded.
  Coding (*coding)(const Spec& spec) = nullptr;
  // Of the exchange `varying`: how values are coded to messages whose length depends on them.
  VaryingCoding (*varying)(const Spec& spec) = nullptr;
  // What this build lacks for the scheme; empty: nothing. Its specs are refused.
  std::string_view lacks = {};
  // Of schemes that know matrices: the rank of the factors as which they are sent (of schemes
  // without feedback it is drawn, and so on average) or, where elements are elected, the columns of
  // the sketch by which ranks agree on a matrix's rows.
  std::size_t (*rank)(const Spec& spec) = nullptr;
  // Of lists of pairs: how their values travel, if not in the type `values`. May be null.
  std::optional<Coding> (*list_coding)(const Spec& spec) = nullptr;
  // Vectors are parameters, which a call brings nearer to their average: its operation is avg, it
  // needs a vector, and keeps no residual of it.
  bool averages_parameters = false;
  WarmUp warm_up = {};
  // Null: gradients are added as they are.
  Correction (*correction)(const Spec& spec) = nullptr;
  // The part of the residual that a call looks at, more than 0; null: all of it.
  float (*low_pass)(const Spec& spec) = nullptr;
  // Sets defaults that depend on other keys; `keys` are those given in the text. May be null.
  void (*complete)(Spec& spec, std::span<const std::string_view> keys) = nullptr;
  // In addition to the sections of all schemes, see saved_state.cpp.
  std::span<const StateSection> sections = {};
  SchemeChecks checks = {};
};

// How a call's values are coded, by the present form or by the scheme; none: they are not. Calls in
// a form have the exchange `coded`.
std::optional<Coding> coding_of(const Spec& spec);
inline bool keeps_coding_loss(const Spec& spec) {
  const std::optional<Coding> coding = coding_of(spec);
  if (spec.scheme->varying) return spec.scheme->varying(spec).keeps_rest;
  return coding && coding->keeps_rest;
}
// Whether a call that sends every element leaves something in accumulators; see
// Compressor::changes().
inline bool changes_accumulators(const Spec& spec) {
  const std::optional<Coding> coding = coding_of(spec);
  return keeps_coding_loss(spec) || (coding && coding->keeps());
}
// The rank of LowRankLayout; 0: the scheme has no use for the shapes of matrices.
inline std::size_t layout_rank_of(const Spec& spec) {
  return spec.scheme->rank ? spec.scheme->rank(spec) : 0;
}
// 0: matrices are not sent as factors.
inline std::size_t rank_of(const Spec& spec) { return spec.sparse() ? 0 : layout_rank_of(spec); }
// 0: rows of matrices are not elected.
inline std::size_t sketch_of(const Spec& spec) { return spec.sparse() ? layout_rank_of(spec) : 0; }
// Whether factors are drawn without bias, so that nothing is kept.
inline bool draws_factors(const Spec& spec) { return rank_of(spec) > 0 && !spec.feedback; }
inline std::optional<Coding> list_coding_of(const Spec& spec) {
  return spec.scheme->list_coding ? spec.scheme->list_coding(spec) : std::nullopt;
}
// Whether the call of this step is dense because the spec begins with dense ones.
inline bool starts_dense(const Spec& spec, std::uint64_t step) {
  const auto dense_calls = spec.scheme->warm_up.dense_calls;
  return dense_calls && step < dense_calls(spec);
}
// Makes the density that of the call of this step.
inline void follow_step(Spec& spec, std::uint64_t step) {
  const auto density_at = spec.scheme->warm_up.density_at;
  if (density_at) spec.density = density_at(spec, step);
}
inline bool corrects_momentum(const Spec& spec) { return spec.scheme->correction != nullptr; }
inline float low_pass_of(const Spec& spec) {
  return spec.scheme->low_pass ? spec.scheme->low_pass(spec) : 1.0f;
}
inline bool filters_residual(const Spec& spec) { return low_pass_of(spec) < 1; }
// Whether every rank gets the lists of all ranks.
inline bool gathers_lists(const Spec& spec) {
  const Electors electors = spec.scheme->electors;
  return electors == Electors::each_rank || electors == Electors::each_by_rule;
}
// Whether every rank elects a list of its own, whatever becomes of it.
inline bool elects_lists(const Spec& spec) {
  const Electors electors = spec.scheme->electors;
  return gathers_lists(spec) || electors == Electors::each_then_owners ||
         electors == Electors::each_then_pairs;
}
// Whether what a call loses of the elements, all of which it sends, is kept.
inline bool keeps_rest(const Spec& spec) {
  return keeps_coding_loss(spec) || (rank_of(spec) > 0 && spec.feedback);
}
inline std::string_view exchange_name(const Spec& spec) {
  return is_coded(spec.form) ? "coded" : spec.scheme->exchange;
}

// The specs that calls may have: the present one unless it is one of `auto`, and those of the forms
// that are allowed.
template <class Visit>
void for_each_form(const Spec& spec, Visit visit) {
  if (!spec.chooses_scheme()) visit(spec);
  for (const Form form : all_forms) {
    if (spec.may_take(form)) visit(in_form(spec, form));
  }
}

// Whether one of them has the property.
template <class Property>
bool any_form(const Spec& spec, Property has) {
  bool any = false;
  for_each_form(spec, [&](const Spec& one) { any = any || has(one); });
  return any;
}

// In the order of the table.
std::span<const Scheme* const> schemes();

}  // namespace pith
