// pith.h implemented: the state of a compressor between its calls. All functions are local.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "api/check.hpp"
#include "api/compressor_handle.hpp"
#include "api/last_error.hpp"
#include "compress/gossip/stated_graph.hpp"
#include "compress/low_rank/stated_matrices.hpp"
#include "compress/saved_state.hpp"
#include "core/run_together.hpp"
#include "kernels/host_compute.hpp"

using namespace pith;
using namespace pith::api;

namespace {

// Runs the body with the compressor claimed, so that no call uses it meanwhile.
template <class Body>
pithResult_t between_calls(const char* function, pithCompressor_t compressor, Body body) {
  return guarded([&]() -> Error {
    if (Error error = check_compressor(function, compressor)) return error;
    const Claim claim(function, *compressor->state);
    if (claim.error()) return claim.error();
    return without_throwing([&] { return body(*compressor->state); });
  });
}

// Unless the norm of acc is known, it follows from what was sent and what stayed.
double gain_of(const CompressorStats& stats, double residual_squares) {
  const bool known = !std::isnan(stats.squares_all);
  const double all = known ? stats.squares_all : stats.squares_sent + residual_squares;
  return all > 0 ? stats.squares_sent / all : 1;
}

pithCompressorStats_t stats_of(const Compressor& compressor) {
  const CompressorStats& last = compressor.stats;
  HostCompute host;
  pithCompressorStats_t out;
  std::memset(&out, 0, sizeof out);
  out.calls = compressor.step;
  out.count = compressor.count();
  out.density_target = compressor.spec().sparse() ? compressor.spec().density : 1;
  out.threshold = double(last.threshold);
  out.selected_local = last.selected_local;
  out.selected_union = last.selected_union;
  if (out.count > 0) out.density = double(last.selected_union) / double(out.count);
  out.leader = last.leader;
  out.bypassed = last.bypassed ? 1 : 0;
  const double residual = compressor.shaped() ? compressor.residual_squares(host) : 0;
  out.gain = gain_of(last, residual);
  out.residual_norm = std::sqrt(residual);
  out.imbalance = last.imbalance;
  out.bytes_sent = last.bytes_sent;
  out.bytes_received = last.bytes_received;
  out.nonfinite = last.nonfinite;
  out.select_seconds = last.select_seconds;
  out.exchange_seconds = last.exchange_seconds;
  out.total_seconds = last.total_seconds;
  out.predicted_seconds = last.predicted_seconds;
  last.algorithm.copy(out.algorithm, sizeof out.algorithm - 1);
  return out;
}

Error check_elements(const char* function, const Compressor& compressor, std::size_t count) {
  if (count == compressor.count()) return {};
  return refused(function, fmt::format("count is {}, expected {} as in the first call", count,
                                       compressor.count()));
}

}  // namespace

pithResult_t pithCompressorGetStats(pithCompressor_t compressor, pithCompressorStats_t* stats) {
  constexpr const char* function = "pithCompressorGetStats";
  return between_calls(function, compressor, [&](const Compressor& state) -> Error {
    if (Error error = check_pointer(function, "stats", stats)) return error;
    const std::size_t size = stats->size;
    if (size < sizeof size) {
      return refused(function, fmt::format("stats->size is {}, expected {}: the size of "
                                           "pithCompressorStats_t as its caller knows it",
                                           size, sizeof(pithCompressorStats_t)));
    }
    pithCompressorStats_t all = stats_of(state);
    all.size = size;
    std::memcpy(stats, &all, std::min(size, sizeof all));
    return {};
  });
}

pithResult_t pithCompressorGetResidual(pithCompressor_t compressor, float* out, size_t count) {
  constexpr const char* function = "pithCompressorGetResidual";
  return between_calls(function, compressor, [&](const Compressor& state) -> Error {
    if (!state.shaped()) {
      return {Code::invalid_usage,
              fmt::format("{}: compressor has no residual before its first call", function)};
    }
    if (Error error = check_elements(function, state, count)) return error;
    if (Error error = check_memory(function, "out", out, count)) return error;
    if (count == 0) return {};
    state.copy_residual(reinterpret_cast<std::byte*>(out));
    return {};
  });
}

pithResult_t pithCompressorGetAccumulator(pithCompressor_t compressor, void** accumulator,
                                          size_t count, pithDataType_t type) {
  constexpr const char* function = "pithCompressorGetAccumulator";
  return between_calls(function, compressor, [&](Compressor& state) -> Error {
    if (Error error = check_pointer(function, "accumulator", accumulator)) return error;
    if (type != pithFloat32) {
      return refused(function,
                     fmt::format("type is {}, expected {}", describe(type), describe(pithFloat32)));
    }
    if (Error error = state.check(count, DType::f32)) return refused(function, error.message());
    if (corrects_momentum(state.spec()) || filters_residual(state.spec())) {
      return refused(function,
                     fmt::format("compressor is {}, expected a scheme without momentum or filter: "
                                 "its gradients are not those of the residual",
                                 state.spec().scheme->name));
    }
    if (state.spec().scheme->averages_parameters) {
      return refused(function,
                     fmt::format("compressor is {}, expected a scheme that sums gradients: it "
                                 "averages parameters, which its calls take from send",
                                 state.spec().scheme->name));
    }
    state.shape(count, DType::f32);
    HostCompute host;
    *accumulator = state.lend_accumulator(host);
    return {};
  });
}

pithResult_t pithCompressorSetShape(pithCompressor_t compressor, const size_t* rows,
                                    const size_t* columns, size_t n) {
  constexpr const char* function = "pithCompressorSetShape";
  return between_calls(function, compressor, [&](Compressor& state) -> Error {
    Error error = check_memory(function, "rows", rows, n);
    if (!error) error = check_memory(function, "columns", columns, n);
    if (error) return error;
    std::vector<MatrixShape> matrices;
    for (std::size_t i = 0; i < n; ++i) matrices.push_back({rows[i], columns[i]});
    error = state_matrices(state, matrices);
    return told_by(function, error);
  });
}

pithResult_t pithCompressorSetGraph(pithCompressor_t compressor, const int* from, const int* to,
                                    size_t edges) {
  constexpr const char* function = "pithCompressorSetGraph";
  return between_calls(function, compressor, [&](Compressor& state) -> Error {
    Error error = check_memory(function, "from", from, edges);
    if (!error) error = check_memory(function, "to", to, edges);
    if (error) return error;
    auto graph = StatedGraph::of({from, edges}, {to, edges});
    error = graph ? state_graph(state, std::move(*graph)) : graph.error();
    return told_by(function, error);
  });
}

pithResult_t pithCompressorScale(pithCompressor_t compressor, float factor) {
  constexpr const char* function = "pithCompressorScale";
  return between_calls(function, compressor, [&](Compressor& state) -> Error {
    if (!std::isfinite(factor) || factor == 0) {
      return refused(
          function, fmt::format("factor is {}, expected a finite number that is not zero", factor));
    }
    HostCompute host;
    state.scale(host, factor);
    return {};
  });
}

pithResult_t pithCompressorReset(pithCompressor_t compressor) {
  return between_calls("pithCompressorReset", compressor, [](Compressor& state) -> Error {
    state.reset();
    return {};
  });
}

pithResult_t pithCompressorSave(pithCompressor_t compressor, void* buffer, size_t* bytes) {
  constexpr const char* function = "pithCompressorSave";
  return between_calls(function, compressor, [&](const Compressor& state) -> Error {
    if (Error error = check_pointer(function, "bytes", bytes)) return error;
    const std::size_t needed = saved_bytes(state);
    if (buffer && *bytes < needed) {
      return refused(function, fmt::format("*bytes is {}, expected at least {}", *bytes, needed));
    }
    if (buffer) save(state, static_cast<std::byte*>(buffer));
    *bytes = needed;
    return {};
  });
}

pithResult_t pithCompressorLoad(pithCompressor_t compressor, const void* buffer, size_t bytes) {
  constexpr const char* function = "pithCompressorLoad";
  return between_calls(function, compressor, [&](Compressor& state) -> Error {
    if (Error error = check_pointer(function, "buffer", buffer)) return error;
    HostCompute host;
    const auto* data = static_cast<const std::byte*>(buffer);
    const Error error = load(state, host, {data, bytes});
    return error ? refused(function, error.message()) : error;
  });
}
