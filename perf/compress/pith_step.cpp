#include "perf/compress/pith_step.hpp"

#include <algorithm>

#include "compress/topk_selector.hpp"

namespace pith_bench {

using namespace pith;

namespace {

Spec topk(double density) {
  Spec spec = *Spec::parse("topk");
  spec.density = density;
  return spec;
}

}  // namespace

PithStep::PithStep(std::size_t count, double density) : compressor_(topk(density)) {
  compressor_.shape(count, DType::f32);
}

void PithStep::load(const Step& step) {
  std::copy_n(step.accumulator, step.count, compressor_.accumulator());
  compressor_.forecast.restore({step.previous, 0, step.error});
}

void PithStep::run(const Step& step) {
  compressor_.begin(++calls_, {reinterpret_cast<const std::byte*>(step.gradient), DType::f32});
  compressor_.taken().begin(DType::f32);
  TopkSelector selector(compressor_, VectorQueue(host_, frames_), step.k, false);
  selector.pass(0, step.count);
  selector.finish();
  compressor_.end(host_);
}

void PithStep::store(Step& step) {
  std::copy_n(compressor_.accumulator(), step.count, step.accumulator);
  const SparseList list = pairs();
  std::copy_n(list.indices, list.count, step.indices);
  std::copy_n(reinterpret_cast<const float*>(list.values), list.count, step.values);
}

SparseList PithStep::pairs() {
  const PairList& taken = compressor_.taken();
  return taken.run(taken.runs() - 1);
}

}  // namespace pith_bench
