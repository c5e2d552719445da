#include "collectives/coded/wire_coding.hpp"

#include <fmt/format.h>

#include "compress/scheme.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

bool codes_each_value(const Spec& spec) {
  if (spec.chooses_scheme() || !spec.scheme->coding) return false;
  const Coding coding = spec.scheme->coding(spec);
  return !coding.keeps_rest && coding.kind != Coding::Kind::signs;
}

}  // namespace

Expected<WireCoding> WireCoding::of(const Spec& spec) {
  if (!codes_each_value(spec)) {
    return Error(
        Code::invalid_argument,
        fmt::format("compressor is {}, expected bf16, fp16, int8, fp8, qsgd, terngrad or natural, "
                    "without feedback=1",
                    spec.text()));
  }
  WireCoding wire;
  wire.scheme_ = spec.scheme;
  wire.choices_ = spec.choices;
  wire.number_ = spec.numbers[0];
  wire.seed_ = spec.seed;
  return wire;
}

Spec WireCoding::spec() const {
  Spec spec = Spec::of(*scheme_);
  spec.choices = choices_;
  spec.numbers[0] = number_;
  spec.seed = seed_;
  return spec;
}

Coding WireCoding::coding() const { return scheme_->coding(spec()); }

std::string_view WireCoding::name() const { return scheme_->name; }

std::uint64_t WireCoding::digest() const {
  std::uint64_t hash = 0;
  for (const std::uint64_t word : spec().pack()) hash = mix(hash, word);
  return hash;
}

}  // namespace pith
