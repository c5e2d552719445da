#include "compress/host_slice.hpp"

#include <cstring>
#include <utility>

#include "core/call_number.hpp"
#include "core/kernel_args.hpp"

namespace pith {

namespace {

Spec flat(Spec spec) {
  spec.by_host = false;
  return spec;
}

}  // namespace

HostSlice::HostSlice(const Spec& spec, std::size_t begin, std::size_t count)
    : begin_(begin), count_(count), inner_(flat(spec)) {
  inner_.shape(count, DType::f32);
}

void HostSlice::add_residual(std::byte* out) const {
  const float* kept = residual();
  out += begin_ * sizeof(float);
  for (std::size_t i = 0; kept && i < count_; ++i, out += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, out, sizeof value);
    value += kept[i];
    std::memcpy(out, &value, sizeof value);
  }
}

double HostSlice::residual_squares(Compute& host, const float* rest, std::size_t count) const {
  if (!rest) return inner_.residual_squares(host);
  const float* kept = residual();
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool inside = kept && i >= begin_ && i - begin_ < count_;
    const double value = double(rest[i]) + (inside ? double(kept[i - begin_]) : 0);
    squares += value * value;
  }
  return squares;
}

void HostSlice::open(std::uint32_t call) {
  if (kept_[0].delivered) std::swap(kept_[0], kept_[1]);
  Kept& kept = kept_[0];
  kept.call = call;
  kept.delivered = false;
  kept.is_zero = true;  // the value for `inner` from now on
  if (kept.memory.count() != count_) kept.memory = Accumulator(count_);
  inner_.exchange_memory(kept.memory, kept.is_zero);
  open_ = true;
  tells_ = false;
}

void HostSlice::end(CompressorStats& stats) {
  if (!std::exchange(open_, false)) return;
  kept_[0].delivered = true;
  if (!tells_) return;
  stats.squares_all = inner_.stats.squares_all;
  stats.squares_sent = inner_.stats.squares_sent;
}

void HostSlice::restore() {
  if (!std::exchange(open_, false)) return;
  inner_.exchange_memory(kept_[0].memory, kept_[0].is_zero);
}

void HostSlice::return_after(std::uint32_t completed) {
  for (Kept& kept : kept_) {
    if (!kept.delivered || !is_later(kept.call, completed)) continue;
    kept.delivered = false;
    inner_.exchange_memory(kept.memory, kept.is_zero);
  }
}

void HostSlice::forget() {
  for (Kept& kept : kept_) kept.delivered = false;
}

void HostSlice::scale(Compute& host, float factor) {
  inner_.scale(host, factor);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &factor, sizeof factor);
  for (Kept& kept : kept_) {
    auto* data = reinterpret_cast<std::byte*>(kept.memory.data());
    if (data) host.run<ScaleKernel>({data, data, kept.memory.count(), DType::f32, {bits}});
  }
}

}  // namespace pith
