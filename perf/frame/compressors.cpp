#include "frame/compressors.hpp"

#include <stdexcept>

#include "compress/scheme.hpp"

namespace pith_perf {

pith::Spec spec_to_measure(const std::string& text) {
  const pith::Expected<pith::Spec> parsed = pith::Spec::parse(text);
  if (!parsed) throw std::runtime_error(parsed.error().message());
  pith::Spec spec = *parsed;
  const bool told = text.find("bypass=") != std::string::npos;
  if (!told) spec.may_bypass = false;
  return spec;
}

namespace {

bool leaves_residual(const pith::Spec& spec) {
  return spec.sparse() ? spec.feedback : changes_accumulators(spec) || keeps_rest(spec);
}

}  // namespace

Compressors::Compressors(const pith::Spec& spec, const Team& team)
    : has_residual_(any_form(spec, leaves_residual)) {
  for (int local = 0; local < team.size(); ++local) {
    pithCompressor_t made = nullptr;
    must(pithCompressorCreate(&made, spec.text().c_str()), "pithCompressorCreate");
    all_.push_back(made);
  }
}

Compressors::~Compressors() {
  for (pithCompressor_t compressor : all_) pithCompressorDestroy(compressor);
}

pithCompressorStats_t Compressors::stats(int local) const {
  pithCompressorStats_t stats = {};
  stats.size = sizeof(stats);
  must(pithCompressorGetStats((*this)[local], &stats), "pithCompressorGetStats");
  return stats;
}

std::vector<float> Compressors::residual(int local, std::size_t count) const {
  std::vector<float> values(count);
  if (!has_residual_) return values;
  must(pithCompressorGetResidual((*this)[local], values.data(), count),
       "pithCompressorGetResidual");
  return values;
}

}  // namespace pith_perf
