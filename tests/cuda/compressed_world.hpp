// Ranks whose compressed calls run on device memory, beside ranks that make the same calls on host
// memory: results and residuals are to be the same bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pith/pith.h"
#include "tests/cuda/device_world.hpp"

namespace pith::cuda::test {

using Values = std::vector<std::byte>;

// One gradient's elements, in its type: heavy tails and some zeros, of a given size. Integers, if
// wanted: sums of their squares are the same in any order.
inline Values gradient(std::size_t rank, unsigned step, std::size_t count, pithDataType_t type,
                       float size = 1, bool integers = false) {
  const std::size_t unit = type == pithFloat32 ? 4 : 2;
  Values out(count * unit);
  std::uint64_t state = 0x9e3779b97f4a7c15u * (rank + 1) + 77 * (step + 1);
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float u = float(state >> 40) / float(1 << 24) - 0.5f;
    float value = (state >> 33 & 15) == 0 ? 0.0f : size * u * std::fabs(u);
    if (integers) value = std::nearbyint(1024 * value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (type == pithFloat32) {
      std::memcpy(&out[i * unit], &bits, unit);
      continue;
    }
    // Formats do not matter here, as long as both sides have the same: cut off, small exponents.
    const auto narrow = type == pithBfloat16
                            ? static_cast<std::uint16_t>(bits >> 16)
                            : static_cast<std::uint16_t>((bits >> 16 & 0x8000) | (bits & 0x3bff));
    std::memcpy(&out[i * unit], &narrow, unit);
  }
  return out;
}

// One tensor on every rank of a side.
class Side {
 public:
  Side(std::size_t ranks, const std::string& spec, std::size_t count, pithDataType_t type)
      : count_(count),
        type_(type),
        unit_(type == pithFloat32 ? 4 : 2),
        integers_(spec.starts_with("deft")) {
    for (std::size_t r = 0; r < ranks; ++r) {
      compressors.push_back(nullptr);
      REQUIRE(pithCompressorCreate(&compressors.back(), spec.c_str()) == pithSuccess);
    }
  }
  ~Side() {
    for (const pithCompressor_t compressor : compressors) pithCompressorDestroy(compressor);
  }
  Side(const Side&) = delete;
  std::size_t bytes() const { return count_ * unit_; }
  std::size_t count() const { return count_; }
  pithDataType_t type() const { return type_; }
  // What DEFT shares depends on the last bit of its norms.
  bool integers() const { return integers_; }
  std::vector<float> residual(std::size_t rank) const {
    std::vector<float> out(count_);
    REQUIRE(pithCompressorGetResidual(compressors[rank], out.data(), count_) == pithSuccess);
    return out;
  }
  std::vector<char> saved(std::size_t rank) const {
    std::size_t size = 0;
    REQUIRE(pithCompressorSave(compressors[rank], nullptr, &size) == pithSuccess);
    std::vector<char> out(size);
    REQUIRE(pithCompressorSave(compressors[rank], out.data(), &size) == pithSuccess);
    return out;
  }
  std::vector<pithCompressor_t> compressors;

 private:
  std::size_t count_;
  pithDataType_t type_;
  std::size_t unit_;
  bool integers_;
};

// A side's vectors: on a device, or on the host where `send` and `recv` are plain memory.
struct Buffers {
  Buffers(std::size_t ranks, std::size_t bytes) {
    for (std::size_t r = 0; r < ranks; ++r) {
      send.push_back(std::make_unique<DeviceMemory>(bytes + 1));
      recv.push_back(std::make_unique<DeviceMemory>(bytes + 1));
    }
  }
  std::vector<std::unique_ptr<DeviceMemory>> send;
  std::vector<std::unique_ptr<DeviceMemory>> recv;
};

// Communicators of one thread, with a stream each.
struct Comms {
  explicit Comms(std::size_t n) : comms(n) {
    setenv("PITH_CHUNK", "8192", 1);
    REQUIRE(pithCommInitAll(comms.data(), static_cast<int>(n), nullptr) == pithSuccess);
    unsetenv("PITH_CHUNK");
    for (std::size_t r = 0; r < n; ++r) streams.push_back(std::make_unique<Stream>());
  }
  ~Comms() {
    for (const pithComm_t comm : comms) pithCommDestroy(comm);
  }
  Comms(const Comms&) = delete;
  std::size_t size() const { return comms.size(); }
  void synchronize() const {
    for (const auto& stream : streams) OK(cu().stream_synchronize(*stream));
  }
  std::vector<pithComm_t> comms;
  std::vector<std::unique_ptr<Stream>> streams;
};

enum class Input { apart, in_place, nothing };

// The gradients of one step.
inline std::vector<Values> gradients(const Side& side, unsigned step, float size = 1) {
  std::vector<Values> all;
  for (std::size_t r = 0; r < side.compressors.size(); ++r) {
    all.push_back(gradient(r, step, side.count(), side.type(), size, side.integers()));
  }
  return all;
}

// Issues one tensor's call on all ranks' streams. The buffers are those of the device.
inline void issue_on_device(const Comms& comms, const Side& side, const Buffers& buffers,
                            const std::vector<Values>& sent, Input input, pithRedOp_t op) {
  for (std::size_t r = 0; r < comms.size(); ++r) {
    const DeviceMemory& from = input == Input::in_place ? *buffers.recv[r] : *buffers.send[r];
    if (side.bytes() > 0) std::memcpy(from.as<void>(), sent[r].data(), side.bytes());
    const void* send = input == Input::nothing ? nullptr : from.as<void>();
    const pithResult_t result =
        pithAllReduceCompressed(send, buffers.recv[r]->as<void>(), side.count(), side.type(), op,
                                side.compressors[r], comms.comms[r], *comms.streams[r]);
    INFO(pithGetLastError(nullptr));
    REQUIRE(result == pithSuccess);
  }
}

// The same on the host, inside a group that the caller opens and ends.
inline void issue_on_host(const Comms& comms, const Side& side, const std::vector<Values>& sent,
                          std::vector<Values>& got, Input input, pithRedOp_t op) {
  got.resize(comms.size());
  for (std::size_t r = 0; r < comms.size(); ++r) {
    got[r].resize(side.bytes() + 1);
    const void* send = input == Input::nothing ? nullptr : sent[r].data();
    const pithResult_t result =
        pithAllReduceCompressed(send, got[r].data(), side.count(), side.type(), op,
                                side.compressors[r], comms.comms[r], nullptr);
    INFO(pithGetLastError(nullptr));
    REQUIRE(result == pithSuccess);
  }
}

// Empty where both sides have the same results and residuals.
inline std::string differences(const Side& device, const Buffers& buffers, const Side& host,
                               const std::vector<Values>& got) {
  for (std::size_t r = 0; r < got.size(); ++r) {
    const auto* there = buffers.recv[r]->as<std::byte>();
    const auto found = std::mismatch(there, there + device.bytes(), got[r].begin());
    if (found.first != there + device.bytes()) {
      return "rank " + std::to_string(r) + ": result differs at byte " +
             std::to_string(found.first - there);
    }
    const std::vector<float> ours = device.residual(r);
    const std::vector<float> theirs = host.residual(r);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(ours[i]) != std::bit_cast<std::uint32_t>(theirs[i])) {
        return "rank " + std::to_string(r) + ": residual " + std::to_string(i) + " is " +
               std::to_string(ours[i]) + ", expected " + std::to_string(theirs[i]);
      }
    }
  }
  return {};
}

// One tensor's state on both sides.
struct Twins {
  Twins(std::size_t ranks, const std::string& spec, std::size_t count,
        pithDataType_t type = pithFloat32)
      : device(ranks, spec, count, type),
        host(ranks, spec, count, type),
        buffers(ranks, device.bytes()) {}
  Side device;
  Side host;
  Buffers buffers;
  std::vector<Values> got;
};

// Both sides have saved the same state, and on the device's a new compressor goes on with it.
inline void renew_on_device(Twins& twins, std::size_t rank, const char* spec) {
  const std::vector<char> state = twins.device.saved(rank);
  CHECK(state == twins.host.saved(rank));
  pithCompressor_t fresh = nullptr;
  REQUIRE(pithCompressorCreate(&fresh, spec) == pithSuccess);
  REQUIRE(pithCompressorLoad(fresh, state.data(), state.size()) == pithSuccess);
  std::swap(fresh, twins.device.compressors[rank]);
  REQUIRE(pithCompressorDestroy(fresh) == pithSuccess);
}

// A call of every one of these tensors on both sides, in a group; empty where they agree.
inline std::string step(const Comms& on_device, const Comms& on_host,
                        const std::vector<Twins*>& tensors, unsigned number, float size = 1,
                        Input input = Input::apart, pithRedOp_t op = pithSum) {
  std::vector<std::vector<Values>> sent;
  for (const Twins* twins : tensors) sent.push_back(gradients(twins->host, number, size));
  REQUIRE(pithGroupStart() == pithSuccess);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Twins& twins = *tensors[t];
    issue_on_device(on_device, twins.device, twins.buffers, sent[t], input, op);
  }
  REQUIRE(pithGroupEnd() == pithSuccess);
  REQUIRE(pithGroupStart() == pithSuccess);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    issue_on_host(on_host, tensors[t]->host, sent[t], tensors[t]->got, input, op);
  }
  REQUIRE(pithGroupEnd() == pithSuccess);
  on_device.synchronize();
  for (const pithComm_t comm : on_device.comms) {
    pithResult_t state = pithSuccess;
    REQUIRE(pithCommGetAsyncError(comm, &state) == pithSuccess);
    INFO(pithGetLastError(comm));
    REQUIRE(state == pithSuccess);
  }
  for (const Twins* twins : tensors) {
    const std::string found = differences(twins->device, twins->buffers, twins->host, twins->got);
    if (!found.empty()) return "step " + std::to_string(number) + ": " + found;
  }
  return {};
}

}  // namespace pith::cuda::test
