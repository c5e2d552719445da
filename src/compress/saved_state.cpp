#include "compress/saved_state.hpp"
#include "compress/gossip/stated_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compress/state_bytes.hpp"
#include "core/mix.hpp"

namespace pith {

static_assert(std::endian::native == std::endian::little);

namespace {

constexpr std::uint64_t magic = 0x6572706d6f437450;  // "PtCompre"
constexpr std::uint32_t version = 1;

std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = mix(magic, bytes.size());
  for (; bytes.size() >= sizeof hash; bytes = bytes.subspan(sizeof hash)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    hash = mix(hash, word);
  }
  for (const std::byte byte : bytes) hash = mix(hash, std::to_integer<std::uint64_t>(byte));
  return hash;
}

// --- the scheme's state, one section per member -----------------------------------------------

void save_density(const SchemeState& state, StateWriter& out) {
  const DensityControl& control = state.density_control;
  out.value(control.density);
  out.value(control.count);
  out.value(control.next);
  out.value(control.link);
}

bool load_density(SchemeState& state, const StateShape& shape, StateReader& in) {
  DensityControl& control = state.density_control;
  control.density = in.value<double>();
  control.count = in.value<std::uint64_t>();
  constexpr std::uint64_t longest_rest = 16;
  control.next = std::min(in.value<std::uint64_t>(), state.step + longest_rest);
  control.link = in.value<LinkSums>();
  return shape.spec.adapts() && is_sound(control);
}

// What the spec may choose, or 0: nothing was chosen.
bool is_choice(const Spec& spec, double density, Form form) {
  if (number_of(form) >= form_count || (form != Form::none && !spec.may_take(form))) return false;
  if (is_coded(form)) return density == 1;
  const bool is_dense = form == Form::none && density == 1 && spec.may_bypass;
  if (density == 0 || is_dense) return form == Form::none;
  if (spec.chooses_scheme() && form == Form::none) return false;
  constexpr double rounded = 1 + 1e-9;
  return density >= double(spec.least_density) && density <= rounded * spec.largest_density();
}

void save_form(const SchemeState& state, StateWriter& out) {
  out.value(state.density_control.form);
  out.value(state.density_control.probes);
  out.value(state.density_control.moved);
  out.value(state.density_control.probed);
}

// States of an older version have no form.
bool load_form(SchemeState& state, const StateShape& shape, StateReader& in) {
  DensityControl& control = state.density_control;
  control.form = in.value<Form>();
  control.probes = in.value<std::uint8_t>() != 0;
  control.moved = in.value<std::uint8_t>() != 0;
  control.probed = std::min(in.value<std::uint64_t>(), state.step);
  return shape.spec.adapts();
}

void save_shares(const SchemeState& state, StateWriter& out) {
  out.value(state.density_control.shares);
}

bool load_shares(SchemeState& state, const StateShape& shape, StateReader& in) {
  state.density_control.shares = in.value<decltype(DensityControl::shares)>();
  return shape.spec.chooses_scheme() && is_sound(state.density_control);
}

// Sections that every scheme has, the third and fourth only with density=auto, the last of `auto`
// only; the others are listed by the scheme.
constexpr StateSection common_sections[] = {
    {"step", save_plain<&SchemeState::step>, load_plain<&SchemeState::step>},
    {"layout", save_plain<&SchemeState::layout>, load_plain<&SchemeState::layout>},
    {"density", save_density, load_density},
    {"form", save_form, load_form},
    {"shares", save_shares, load_shares},
};

std::span<const StateSection> common_of(const Spec& spec) {
  return std::span(common_sections).first(spec.chooses_scheme() ? 5 : (spec.adapts() ? 4 : 2));
}

// Those that the schemes of the spec's calls list, each once.
std::vector<StateSection> listed_of(const Spec& spec) {
  std::vector<StateSection> all;
  for_each_form(spec, [&all](const Spec& one) {
    for (const StateSection& section : one.scheme->sections) {
      const auto is_same = [&](const StateSection& known) { return known.name == section.name; };
      if (std::ranges::none_of(all, is_same)) all.push_back(section);
    }
  });
  return all;
}

void write_section(const StateSection& section, const SchemeState& state, StateWriter& out) {
  StateWriter counted(nullptr);
  section.save(state, counted);
  out.text(section.name);
  out.value(static_cast<std::uint64_t>(counted.size()));
  section.save(state, out);
}

void write_state(const SchemeState& state, const Spec& spec, StateWriter& out) {
  const auto common = common_of(spec);
  const auto listed = listed_of(spec);
  out.value(static_cast<std::uint64_t>(common.size() + listed.size()));
  for (const StateSection& section : common) write_section(section, state, out);
  for (const StateSection& section : listed) write_section(section, state, out);
}

const StateSection* find_section(std::span<const StateSection> sections, std::string_view name) {
  const auto found = std::find_if(sections.begin(), sections.end(),
                                  [&](const StateSection& one) { return one.name == name; });
  return found == sections.end() ? nullptr : &*found;
}

// Of `auto` the spec by which a listed section is read: that of its form, if that lists it, else of
// the first form that does.
Spec reading_spec(const Spec& spec, Form form, std::string_view section) {
  if (!spec.chooses_scheme()) return spec;
  std::optional<Spec> found;
  for_each_form(spec, [&](const Spec& one) {
    const bool lists = find_section(one.scheme->sections, section) != nullptr;
    if (lists && (!found || one.form == form)) found = one;
  });
  return found.value_or(spec);
}

// For states of an older version, in which every scheme saved the sections of all schemes.
bool is_of_another(std::string_view name) {
  const auto all = schemes();
  return std::any_of(all.begin(), all.end(), [&](const Scheme* scheme) {
    return find_section(scheme->sections, name) != nullptr;
  });
}

bool read_section(SchemeState& state, const StateShape& shape, StateReader& in) {
  const std::string_view name = in.text();
  StateReader content(in.bytes(in.value<std::uint64_t>()));
  if (!in.good()) return false;
  if (const StateSection* section = find_section(common_sections, name)) {
    return section->load(state, shape, content) && content.ended();
  }
  const auto listed = listed_of(shape.spec);
  const StateSection* const section = find_section(listed, name);
  if (!section) return is_of_another(name);
  const Spec spec = reading_spec(shape.spec, state.density_control.form, name);
  return section->load(state, {spec, shape.count}, content) && content.ended();
}

bool read_state(SchemeState& state, const StateShape& shape, StateReader& in) {
  const auto n = in.value<std::uint64_t>();
  for (std::uint64_t i = 0; i < n && in.good(); ++i) {
    if (!read_section(state, shape, in)) return false;
  }
  const DensityControl& control = state.density_control;
  return in.good() &&
         (!shape.spec.adapts() || is_choice(shape.spec, control.density, control.form));
}

// --- the whole --------------------------------------------------------------------------------

struct Loaded {
  std::string_view spec;
  bool shaped = false;
  std::uint8_t type = 0;
  std::uint64_t count = 0;
  double scale = 1;
  SchemeState state;
  std::span<const std::byte> residual;
  std::span<const std::byte> velocity;  // of schemes that correct momentum
};

void write(const Compressor& compressor, StateWriter& out) {
  out.value(magic);
  out.value(version);
  out.text(compressor.spec().text());
  out.value(static_cast<std::uint8_t>(compressor.shaped()));
  out.value(static_cast<std::uint8_t>(compressor.type()));
  out.value(static_cast<std::uint64_t>(compressor.count()));
  out.value(compressor.scale());
  write_state(compressor, compressor.spec(), out);
  std::byte* residual = out.room(compressor.count() * sizeof(float));
  if (residual) compressor.copy_residual(residual);
  if (!compressor.velocity) return;
  std::byte* velocity = out.room(compressor.count() * sizeof(float));
  if (velocity) compressor.velocity->memory().copy_to(velocity);
}

Error bad(const std::string& what) {
  return {Code::invalid_argument, fmt::format("the saved state {}", what)};
}

Error read(std::span<const std::byte> bytes, const Spec& spec, Loaded& loaded) {
  const std::string damaged = fmt::format("of {} bytes is damaged or cut short", bytes.size());
  StateReader head(bytes);
  if (head.value<std::uint64_t>() != magic) {
    return bad("does not begin like one, expected bytes of pithCompressorSave");
  }
  const auto found = head.value<std::uint32_t>();
  if (!head.good()) return bad(damaged);
  if (found != version) {
    return bad(fmt::format("has version {}, expected {}", found, version));
  }
  if (bytes.size() < sizeof(std::uint64_t)) return bad(damaged);
  const auto body = bytes.first(bytes.size() - sizeof(std::uint64_t));
  if (StateReader(bytes.subspan(body.size())).value<std::uint64_t>() != checksum(body)) {
    return bad(damaged);
  }
  StateReader in(body.subspan(sizeof magic + sizeof version));
  loaded.spec = in.text();
  const std::string own = spec.text();
  // Of an older version the text lacks keys.
  Expected<Spec> saved = Spec::parse(loaded.spec);
  if (saved) saved->quantise = spec.quantise;  // what the state has chosen is checked
  if (!saved || saved->text() != own) {
    return bad(fmt::format("is of \"{}\", expected \"{}\"", loaded.spec, own));
  }
  loaded.shaped = in.value<std::uint8_t>() != 0;
  loaded.type = in.value<std::uint8_t>();
  loaded.count = in.value<std::uint64_t>();
  loaded.scale = in.value<double>();
  if (!read_state(loaded.state, {spec, loaded.count}, in))
    return bad("holds a state that is not known here");
  const std::uint64_t limit = bytes.size() / sizeof(float);
  const std::uint64_t vector = loaded.count <= limit ? loaded.count * sizeof(float) : ~0ull;
  loaded.residual = in.bytes(vector);
  if (corrects_momentum(spec) && loaded.shaped) loaded.velocity = in.bytes(vector);
  return in.ended() ? Error() : bad(damaged);
}

Error check(const Compressor& compressor, const Loaded& loaded) {
  const auto& matrices = compressor.low_rank.layout;
  const auto& saved = loaded.state.low_rank.layout;
  if (matrices && saved && matrices->digest() != saved->digest()) {
    return bad("is of other matrices than the compressor's");
  }
  const std::uint64_t known = loaded.shaped ? loaded.count : compressor.count();
  if (saved && (loaded.shaped || compressor.shaped()) && saved->count() != known) {
    return bad(fmt::format("is of matrices of {} elements, expected {}", saved->count(), known));
  }
  if (const auto& graph = compressor.gossip.graph) {
    if (check_edges(loaded.state.gossip, *graph)) return bad("is of another graph of gossip");
  }
  if (!loaded.shaped) return {};
  if (loaded.type >= dtype_count) return bad("is of a type that is not known here");
  const Error error = compressor.check(loaded.count, static_cast<DType>(loaded.type));
  return error ? bad(fmt::format("does not fit: {}", error.message())) : error;
}

}  // namespace

std::size_t saved_bytes(const Compressor& compressor) {
  StateWriter counted(nullptr);
  write(compressor, counted);
  return counted.size() + sizeof(std::uint64_t);
}

void save(const Compressor& compressor, std::byte* out) {
  StateWriter writer(out);
  write(compressor, writer);
  const std::uint64_t sum = checksum({out, writer.size()});
  std::memcpy(out + writer.size(), &sum, sizeof sum);
}

Error load(Compressor& compressor, Compute& host, std::span<const std::byte> bytes) {
  Loaded loaded;
  Error error = read(bytes, compressor.spec(), loaded);
  if (!error) error = check(compressor, loaded);
  if (error) return error;
  if (loaded.shaped) compressor.shape(loaded.count, static_cast<DType>(loaded.type));
  const bool is_new = compressor.is_new();
  if (!loaded.state.low_rank.layout) loaded.state.low_rank = compressor.low_rank;
  if (!compressor.low_rank.layout) compressor.low_rank = loaded.state.low_rank;
  if (const auto& graph = compressor.gossip.graph) {
    loaded.state.gossip.graph = graph;
    loaded.state.gossip.edges = graph->digest();
  }
  if (loaded.shaped) {
    compressor.add_saved(host, loaded.residual.data(), loaded.velocity.data());
  }
  if (is_new) compressor.adopt(loaded.state, loaded.scale);
  return {};
}

}  // namespace pith
