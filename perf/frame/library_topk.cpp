#include "frame/library_topk.hpp"

#include <algorithm>

#include "compress/topk_selector.hpp"
#include "kernels/cast.hpp"
#include "kernels/host_compute.hpp"

namespace pith_perf {

Pairs take_topk(std::span<float> sums, std::size_t k, pith::DType values) {
  pith::Spec spec = *pith::Spec::parse("topk");
  spec.values = values;
  pith::Compressor compressor(spec);
  pith::HostCompute host;
  pith::FrameArena frames;
  compressor.shape(sums.size(), pith::DType::f32);
  std::copy(sums.begin(), sums.end(), compressor.accumulator());
  compressor.begin(1, {});
  {
    pith::TopkSelector selector(compressor, pith::VectorQueue(host, frames), k, false);
    selector.pass(0, sums.size());
    selector.finish();
  }
  std::copy_n(compressor.accumulator(), sums.size(), sums.begin());
  pith::PairList& taken = compressor.taken();
  Pairs pairs;
  pairs.indices.assign(taken.indices(), taken.indices() + taken.count());
  pairs.values.resize(taken.count());
  pith::kernels::cast(reinterpret_cast<std::byte*>(pairs.values.data()), pith::DType::f32,
                      taken.values(), values, taken.count());
  return pairs;
}

}  // namespace pith_perf
