// Specs of compressors: what is accepted comes back from its text and its packed form, with
// densities that its calls can have; what is not is refused by a message.
#include "compress/density_key.hpp"
#include "compress/scheme.hpp"
#include "fuzz_target.hpp"

namespace pith::fuzz {

namespace {

void check_densities(const Spec& spec) {
  const bool has_form = is_coded(spec.form);
  expect(!has_form || (spec.adapts() && spec.may_take(spec.form) && spec.density == 1));
  expect(!spec.chooses_scheme() || spec.may_take(spec.form));
  expect(has_form || (spec.density > 0 && spec.density <= spec.largest_density()));
  expect(spec.time_weight > 0 && spec.time_weight <= 1);
  if (!spec.adapts()) return;
  const Candidates all = candidates_of(spec);
  expect(all.count >= 2 && all.count <= most_candidates);
  expect(all[0] >= double(spec.least_density) && all[all.count - 1] <= spec.largest_density());
  for (std::size_t i = 1; i < all.count; ++i) expect(all[i - 1] <= all[i]);
  expect(has_form || all[all.nearest(spec.density)] == spec.density);
  expect(!spec.by_host);
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const std::string_view text = text_of(input);
  const Expected<Spec> found = Spec::parse(text);
  if (!found) {
    expect(found.error().code() == Code::invalid_argument);
    expect(std::string_view(found.error().message()).find("spec") != std::string_view::npos);
    return;
  }
  const Spec& spec = *found;
  const Expected<Spec> again = Spec::parse(spec.text());
  expect(again && *again == spec && again->digest() == spec.digest());
  expect(Spec::unpack(spec.pack()) == spec);
  if (spec.sparse() || spec.chooses_scheme()) check_densities(spec);
}

// Every key with each of its words, alone and with others.
std::vector<std::string> seeds() {
  std::vector<std::string> seeds;
  const auto add = [&](const Scheme& scheme, std::string_view key, std::string_view value) {
    const std::string one = std::string(key) + "=" + std::string(value);
    const std::string name = std::string(scheme.name) + ":";
    seeds.push_back(name + one);
    seeds.push_back(name + "density=auto," + one);
    seeds.push_back(name + "density=auto,quantise=auto," + one);
    seeds.push_back(name + "density=0.002..0.5,objective=paper," + one);
  };
  for (const Scheme* scheme : schemes()) {
    seeds.emplace_back(scheme->name);
    seeds.push_back(Spec::of(*scheme).text());
    for (const Key& key : scheme->keys) {
      for (const std::string_view word : key.words) add(*scheme, key.name, word);
      if (key.kind == Key::Kind::set) add(*scheme, key.name, "topk+ar-topk+onebit");
      if (!key.words.empty()) continue;
      for (const char* number : {"0.25", "1", "1e-30", "0.9999999", "0.1..1", "7", "auto"}) {
        add(*scheme, key.name, number);
      }
    }
  }
  return seeds;
}

}  // namespace pith::fuzz
