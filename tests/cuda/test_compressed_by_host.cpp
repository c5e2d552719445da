// hierarchy=host on device memory, beside the same on host memory: ranks of one thread, of which
// the test says on which host each runs.
#include <limits>

#include "collectives/algorithm.hpp"
#include "collectives/compressed.hpp"
#include "collectives/hosts.hpp"
#include "collectives/sparse/compressed_calls.hpp"
#include "streams/cuda_vectors.hpp"
#include "tests/cuda/compressed_world.hpp"

using namespace pith::cuda::test;
namespace cuda = pith::cuda;
using pith::CompressedCalls;
using pith::CompressedTensor;
using pith::Compressor;
using pith::DType;
using pith::Hosts;

namespace {

using Layout = std::vector<int>;

// The same tensors on every rank of a world.
class Ranks {
 public:
  Ranks(std::size_t ranks, const std::string& spec, const std::vector<std::size_t>& counts,
        bool on_device, bool views)
      : world_(static_cast<int>(ranks)),
        counts_(counts),
        on_device_(on_device),
        integers_(spec.starts_with("deft")) {
    tuning_.chunk_bytes = 4096;
    for (std::size_t r = 0; r < ranks; ++r) {
      pith::CallContext& context = world_[r].context;
      context.views = views;
      if (!on_device) context.compute = context.host = &world_[r].host;
      for (const std::size_t count : counts) {
        auto made = Compressor::create(spec);
        REQUIRE(made);
        compressors_.push_back(std::move(*made));
        if (on_device) REQUIRE_FALSE(compressors_.back()->move_to(vectors()));
        compressors_.back()->shape(count, DType::f32);
        compressors_.back()->make_room_for_whole();
        send_.push_back(std::make_unique<DeviceMemory>(count * 4 + 4));
        recv_.push_back(std::make_unique<DeviceMemory>(count * 4 + 4));
      }
    }
  }

  // One call; `spoils`: a rank's gradient is not finite.
  void step(const Hosts& hosts, unsigned number, bool spoils) {
    tensors_.assign(world_.size(), {});
    calls_.resize(world_.size());
    for (std::size_t r = 0; r < world_.size(); ++r) {
      world_[r].context.hosts = &hosts;
      for (std::size_t t = 0; t < counts_.size(); ++t) {
        const std::size_t i = r * counts_.size() + t;
        const Values sent = gradient(r + 10 * t, number, counts_[t], pithFloat32, 1, integers_);
        auto* send = send_[i]->as<float>();
        if (!sent.empty()) std::memcpy(send, sent.data(), sent.size());
        if (spoils && i == 1 && counts_[t] > 0) *send = std::numeric_limits<float>::infinity();
        CompressedTensor tensor;
        tensor.compressor = compressors_[i].get();
        tensor.send = number == 3 ? nullptr : send_[i]->as<std::byte>();
        tensor.recv = recv_[i]->as<std::byte>();
        tensor.count = counts_[t];
        tensor.average = number == 2;
        if (on_device_) tensor.device = world_[r].compute.get();
        tensors_[r].push_back(tensor);
      }
    }
    world_.run([this](pith::Call& call) {
      const auto rank = static_cast<std::size_t>(call.rank());
      return pith::allreduce_compressed(call, tensors_[rank], tuning_, calls_[rank]);
    });
  }

  // Every rank's results and residuals, of one tensor after the other.
  std::vector<float> state() {
    std::vector<float> all;
    for (std::size_t i = 0; i < compressors_.size(); ++i) {
      const std::size_t count = compressors_[i]->count();
      const auto* got = recv_[i]->as<float>();
      all.insert(all.end(), got, got + count);
      std::vector<float> residual(count + 1);
      compressors_[i]->copy_residual(reinterpret_cast<std::byte*>(residual.data()));
      all.insert(all.end(), residual.begin(), residual.end() - 1);
    }
    return all;
  }
  double squares() {
    double all = 0;
    for (const auto& compressor : compressors_) all += compressor->residual_squares(host_);
    return all;
  }
  void scale(float factor) {
    for (const auto& compressor : compressors_) compressor->scale(host_, factor);
  }
  void move(bool to_device) {
    for (const auto& compressor : compressors_) {
      REQUIRE_FALSE(compressor->move_to(to_device ? vectors() : nullptr));
    }
  }

 private:
  static pith::DeviceVectors* vectors() {
    const Stream stream;
    const auto device = cuda::Device::of_stream(stream);
    REQUIRE(device);
    const auto found = pith::CudaVectors::of(**device);
    REQUIRE(found);
    return *found;
  }

  DeviceWorld world_;
  std::vector<std::size_t> counts_;
  bool on_device_;
  bool integers_;
  pith::HostCompute host_;
  pith::Tuning tuning_;
  std::vector<std::unique_ptr<Compressor>> compressors_;
  std::vector<std::unique_ptr<DeviceMemory>> send_;
  std::vector<std::unique_ptr<DeviceMemory>> recv_;
  std::vector<std::vector<CompressedTensor>> tensors_;
  std::vector<CompressedCalls> calls_;  // of each rank
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check(const std::string& spec, const Layout& layout, const std::vector<std::size_t>& counts,
           bool views) {
  const Hosts hosts{std::span<const int>(layout)};
  Layout all_on_one(layout.size(), 0);
  const Hosts one{std::span<const int>(all_on_one)};
  Ranks device(layout.size(), spec + ",bypass=never,hierarchy=host", counts, true, views);
  Ranks host(layout.size(), spec + ",bypass=never,hierarchy=host", counts, false, views);
  INFO(spec << " on " << layout.size() << " ranks, views " << views);
  for (unsigned number = 0; number < 8; ++number) {
    // What is kept for a host returns to its owners where hosts are others; such a call is dense.
    const Hosts& used = number == 5 ? one : hosts;
    CAPTURE(number);
    device.step(used, number, number == 4);
    host.step(used, number, number == 4);
    REQUIRE(same_bits(device.state(), host.state()));
    REQUIRE(std::fabs(device.squares() - host.squares()) <= 1e-9 * (1 + host.squares()));
    if (number == 1) {
      device.scale(0.5f);
      host.scale(0.5f);
    } else if (number == 6) {
      const std::vector<float> before = device.state();
      device.move(false);
      REQUIRE(same_bits(device.state(), before));
      device.move(true);
      REQUIRE(same_bits(device.state(), before));
    }
  }
}

}  // namespace

TEST_CASE("hierarchy=host on device memory gives the host's bits") {
  const cuda::test::Device device;
  const char* spec = GENERATE("topk:density=0.05", "topk:density=0.05,values=bf16,exchange=ring",
                              "ar-topk:density=0.05,election=variance,score=raw",
                              "exdyna:density=0.05", "deft:density=0.05");
  const bool views = GENERATE(false, true);
  check(spec, {0, 0, 1, 1}, {20000}, views);
  check(spec, {0, 1, 1, 0, 1}, {3000, 0, 17}, views);
}
