#include "gradient_compressor.hpp"

#include "collectives.hpp"
#include "dtypes.hpp"
#include "errors.hpp"

namespace pith_torch {

GradientCompressor::GradientCompressor(const std::string& spec) {
  check(pithCompressorCreate(&compressor_, spec.c_str()));
}

GradientCompressor::~GradientCompressor() { pithCompressorDestroy(compressor_); }

pithCompressorStats_t GradientCompressor::read_stats() const {
  pithCompressorStats_t stats{};
  stats.size = sizeof stats;
  check(pithCompressorGetStats(compressor_, &stats));
  return stats;
}

at::Tensor GradientCompressor::residual() const {
  const pithCompressorStats_t stats = read_stats();
  const at::Tensor residual = at::zeros({static_cast<int64_t>(stats.count)}, at::kFloat);
  if (stats.count == 0) return residual;
  check(pithCompressorGetResidual(compressor_, residual.data_ptr<float>(), stats.count));
  return residual;
}

void GradientCompressor::set_shape(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<std::size_t> rows;
  std::vector<std::size_t> columns;
  for (const std::vector<int64_t>& sizes : shapes) {
    const auto elements = static_cast<std::size_t>(c10::multiply_integers(sizes));
    const auto first = static_cast<std::size_t>(sizes.empty() ? 1 : sizes.front());
    rows.push_back(first);
    columns.push_back(first == 0 ? 0 : elements / first);
  }
  check(pithCompressorSetShape(compressor_, rows.data(), columns.data(), rows.size()));
}

void GradientCompressor::scale(double factor) {
  check(pithCompressorScale(compressor_, static_cast<float>(factor)));
}

std::map<std::string, double> GradientCompressor::stats() const {
  const pithCompressorStats_t s = read_stats();
  return {{"calls", static_cast<double>(s.calls)},
          {"count", static_cast<double>(s.count)},
          {"density_target", s.density_target},
          {"density", s.density},
          {"threshold", s.threshold},
          {"selected_local", static_cast<double>(s.selected_local)},
          {"selected_union", static_cast<double>(s.selected_union)},
          {"leader", s.leader},
          {"bypassed", s.bypassed},
          {"gain", s.gain},
          {"residual_norm", s.residual_norm},
          {"imbalance", s.imbalance},
          {"bytes_sent", static_cast<double>(s.bytes_sent)},
          {"bytes_received", static_cast<double>(s.bytes_received)},
          {"nonfinite", static_cast<double>(s.nonfinite)},
          {"select_seconds", s.select_seconds},
          {"exchange_seconds", s.exchange_seconds},
          {"total_seconds", s.total_seconds},
          {"predicted_seconds", s.predicted_seconds}};
}

std::string GradientCompressor::algorithm() const { return read_stats().algorithm; }

WorkReturned Collectives::allreduce_compressed(
    const at::Tensor& tensor, const std::shared_ptr<GradientCompressor>& compressor, bool average,
    bool async) {
  const Reduction reduction(tensor.scalar_type(), c10d::ReduceOp::SUM);
  const at::Tensor operand = reduction.operand(tensor);
  const pithRedOp_t op = average ? pithAvg : pithSum;
  Call call{{c10d::OpType::ALLREDUCE, "pith:all_reduce_compressed", {tensor}, {{tensor}}},
            {},
            {},
            false,
            tensor};
  call.issue = [=](pithComm_t comm, pithStream_t stream) {
    check(pithAllReduceCompressed(operand.data_ptr(), operand.data_ptr(),
                                  static_cast<std::size_t>(operand.numel()), reduction.type(), op,
                                  compressor->get(), comm, stream));
  };
  call.finish = [=] {
    (void)compressor;  // must live until the call has ended
    reduction.store(operand, tensor);
  };
  return run(std::move(call), async);
}

}  // namespace pith_torch
