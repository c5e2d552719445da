// Where a compressor's vectors are, and copies of them: between calls.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "compress/compressor.hpp"
#include "compress/host_slice.hpp"
#include "compress/memory/add_floats.hpp"
#include "compress/scheme.hpp"
#include "core/failure.hpp"
#include "core/kernel_args.hpp"

namespace pith {

void Compressor::shape(std::size_t count, DType type) {
  if (shaped_) return;
  accumulator_ = Accumulator(count, device_);
  if (corrects_momentum(spec_)) {
    velocity = std::make_unique<Velocity>(spec_.scheme->correction(spec_), count, device_);
  }
  if (filters_residual(spec_)) {
    held_back = std::make_unique<HeldBack>(1 - low_pass_of(spec_), count, device_);
  }
  count_ = count;
  type_ = type;
  shaped_ = true;
}

float* Compressor::lend_accumulator(Compute& host) {
  clear_spent(host);
  lent_ = true;
  return accumulator();
}

Error Compressor::check_move_to(const DeviceVectors* device) const {
  if (device == device_ || !lent_) return {};
  return {Code::invalid_usage,
          fmt::format("compressor's accumulator was lent on {}, expected memory of the same kind",
                      device_ ? "a device" : "the host")};
}

Error Compressor::move_to(DeviceVectors* device) {
  if (device == device_) return {};
  if (Error error = check_move_to(device)) return error;
  const DeviceVectors* either = device ? device : device_;
  Compute& copies = const_cast<DeviceVectors*>(either)->compute();
  const auto copy = [&](const Accumulator& memory) {
    if (!memory.data()) return Accumulator();
    Accumulator moved(memory.count(), device);
    copies.run<CopyKernel>({reinterpret_cast<std::byte*>(moved.data()),
                            reinterpret_cast<const std::byte*>(memory.data()),
                            memory.count() * sizeof(float)});
    return moved;
  };
  try {
    // Both copies exist before either is replaced, since the second allocation may fail.
    Accumulator accumulator = copy(accumulator_);
    Accumulator delivered = copy(delivered_);
    if (held_back) held_back->memory() = Accumulator(count_, device);
    if (velocity) velocity->memory() = copy(velocity->memory());
    accumulator_ = std::move(accumulator);
    delivered_ = std::move(delivered);
    changes_ = Accumulator();
  } catch (const Failure& failure) {
    return failure.error();
  }
  device_ = device;
  return {};
}

double Compressor::residual_squares(Compute& host) const {
  if (slice_) {
    const float* rest = spent_ ? nullptr : accumulator();
    Scratch copied;
    if (rest && device_) {
      copied = Scratch(device_->pinned(), std::max<std::size_t>(count_, 1) * sizeof(float));
      device_->compute().run<CopyKernel>(
          {copied.bytes().data, reinterpret_cast<const std::byte*>(rest), count_ * sizeof(float)});
      rest = reinterpret_cast<const float*>(copied.bytes().data);
    }
    return slice_->residual_squares(host, rest, count_);
  }
  if (spent_) return 0;
  const auto* data = reinterpret_cast<const std::byte*>(accumulator());
  const Scratch found(reachable(host), sizeof(double));
  auto* squares = reinterpret_cast<double*>(found.bytes().data);
  *squares = 0;
  vectors(host).run<SquaresKernel>({data, count_, DType::f32, squares});
  return *squares;
}

void Compressor::copy_residual(std::byte* out) const {
  const std::size_t bytes = count_ * sizeof(float);
  if (bytes == 0) return;
  if (spent_) {
    std::memset(out, 0, bytes);
  } else {
    accumulator_.copy_to(out);
  }
  if (slice_) slice_->add_residual(out);
}

void Compressor::exchange_memory(Accumulator& memory, bool& is_zero) {
  std::swap(accumulator_, memory);
  std::swap(spent_, is_zero);
}

void Compressor::add_saved(Compute& host, const std::byte* residual, const std::byte* of_velocity) {
  if (velocity && of_velocity) {
    add_floats(host, device_, {velocity->data(), of_velocity, count_, false});
  }
  add_floats(host, device_, {accumulator(), residual, count_, spent_});
  is_new_ = spent_ = false;  // after the kernels, which a device may refuse
}

}  // namespace pith
