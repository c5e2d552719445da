#include "compress/compressor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "core/kernel_args.hpp"
#include "core/mix.hpp"

namespace pith {

Expected<std::unique_ptr<Compressor>> Compressor::create(std::string_view text) {
  const Expected<Spec> spec = Spec::parse(text);
  if (!spec) return spec.error();
  return std::make_unique<Compressor>(*spec);
}

Error Compressor::check(std::size_t count, DType type) const {
  constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();
  if (type != DType::f32 && type != DType::f16 && type != DType::bf16) {
    return {Code::invalid_argument,
            fmt::format("type is {}, expected float, half or bfloat16", name_of(type))};
  }
  if (count > most) {
    return {Code::invalid_argument, fmt::format("count is {}, expected at most {}", count, most)};
  }
  if (!shaped_ || (count == count_ && type == type_)) return {};
  return {Code::invalid_argument,
          fmt::format("count is {} of type {}, expected {} of type {} as in the first call", count,
                      name_of(type), count_, name_of(type_))};
}

void Compressor::shape(std::size_t count, DType type) {
  if (shaped_) return;
  accumulator_ = Accumulator(count);
  count_ = count;
  type_ = type;
  shaped_ = true;
}

void Compressor::begin(std::uint32_t call, const Gradient& gradient) {
  gradient_ = gradient;
  if (gradient.data == reinterpret_cast<const std::byte*>(accumulator())) gradient_.data = nullptr;
  added_ = {};
  in_call_ = true;
  std::swap(taken_[0], taken_[1]);
  taken_[0].call = call;
  taken_[0].pairs.begin(spec_.values);
  stats = {};
  follows = false;
  histogram = nullptr;
}

AccumulateKernel::Args Compressor::pass(std::size_t begin, std::size_t count, PassResult& result) {
  if (added_.count == 0) added_.begin = begin;
  added_.count += count;
  const bool in_place = !gradient_.data;
  return {.accumulator = accumulator() + begin,
          .gradient = in_place ? nullptr : gradient_.data + begin * size_of(gradient_.type),
          .type = gradient_.type,
          .count = count,
          .fresh = !spec_.feedback && !in_place,
          .result = &result,
          .histogram = histogram};
}

void Compressor::add_rest(Compute& host) {
  while (added_.count < count_) {
    const std::size_t at = (added_.begin + added_.count) % count_;
    const std::size_t count = std::min(count_ - at, count_ - added_.count);
    PassResult result;
    host.run<AccumulateKernel>(pass(at, count, result));
    stats.nonfinite += result.nonfinite;
  }
}

void Compressor::give_back(Compute& host, Taken& taken) {
  PairList& pairs = taken.pairs;
  host.run<ReturnKernel>(
      {accumulator(), pairs.indices(), pairs.values(), pairs.count(), pairs.type()});
  pairs.begin(pairs.type());
}

void Compressor::return_taken(Compute& host) { give_back(host, taken_[0]); }

void Compressor::fail(Compute& host) {
  if (!in_call_) return;
  in_call_ = false;
  return_taken(host);
  add_rest(host);
}

void Compressor::end(Compute& host) {
  in_call_ = false;
  ++step;
  PairList& sent = taken();
  stats.selected_local = follows ? 0 : sent.count();
  host.run<SquaresKernel>({sent.values(), sent.count(), sent.type(), &stats.squares_sent});
}

void Compressor::return_after(Compute& host, std::uint32_t completed) {
  for (Taken& taken : taken_) {
    if (taken.call > completed) give_back(host, taken);
  }
}

void Compressor::reset() {
  accumulator_ = Accumulator();
  shaped_ = false;
  count_ = 0;
  scale_ = 1;
  step = 0;
  forecast = {};
  raw_norm = {};
  succession = {};
  stats = {};
  for (Taken& taken : taken_) taken.pairs.begin(spec_.values);
}

void Compressor::scale(Compute& host, float factor) {
  scale_ *= double(factor);
  forecast.scale(factor);
  for (Taken& taken : taken_) taken.pairs.begin(spec_.values);  // of another scale
  if (!shaped_) return;
  auto* data = reinterpret_cast<std::byte*>(accumulator());
  std::uint64_t bits = 0;
  std::memcpy(&bits, &factor, sizeof factor);
  host.run<ScaleKernel>({data, data, count_, DType::f32, bits});
}

std::uint64_t Compressor::digest() const {
  return mix(mix(spec_.digest(), step), std::bit_cast<std::uint64_t>(scale_));
}

}  // namespace pith
