// Compressed calls on device memory beside the same on host memory, over any driver: results and
// residuals are the same bits.
#include <cmath>

#include "tests/cuda/gpu_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::gpu;

namespace {

struct Side {
  explicit Side(const char* spec) { ok(pithCompressorCreate(&compressor, spec)); }
  ~Side() { pithCompressorDestroy(compressor); }
  Side(const Side&) = delete;
  std::vector<float> residual(std::size_t count) const {
    std::vector<float> out(count);
    ok(pithCompressorGetResidual(compressor, out.data(), count));
    return out;
  }
  pithCompressor_t compressor = nullptr;
};

// Heavy tails and some zeros; whole numbers where norms must not depend on an order.
float gradient(int rank, unsigned step, std::size_t i, bool whole) {
  const std::uint32_t bits = value_of(rank, i, step) * 2246822519u;
  const float u = static_cast<float>(bits >> 8) / static_cast<float>(1 << 24) - 0.5f;
  const float found = (bits & 15) == 0 ? 0.0f : u * std::fabs(u);
  return whole ? std::nearbyint(1024 * found) : found;
}

void run_scheme(Rank& rank, const char* spec, std::size_t count) {
  const Gpu gpu;
  const Memory send(gpu, 4 * count), recv(gpu, 4 * count);
  const ranks::Comm on_device(rank.join());
  pithComm_t made = nullptr;
  ok(pithCommInitRank(&made, rank.size, rank.id(1), rank.rank));
  const ranks::Comm on_host(made);
  const Side device(spec), host(spec);
  const bool whole = std::string(spec).starts_with("deft");
  std::vector<float> sent(count), got(count);
  rank.meet();
  for (unsigned step = 0; step < 5; ++step) {
    for (std::size_t i = 0; i < count; ++i) sent[i] = gradient(rank.rank, step, i, whole);
    std::memcpy(send.image(), sent.data(), send.bytes());
    send.put();
    const pithRedOp_t op = step == 2 ? pithAvg : pithSum;
    ok(pithAllReduceCompressed(send.at(), recv.at(), count, pithFloat32, op, device.compressor,
                               on_device, gpu.stream));
    gpu.wait();
    ok(pithAllReduceCompressed(sent.data(), got.data(), count, pithFloat32, op, host.compressor,
                               on_host, nullptr));
    recv.get();
    const std::string name = "step " + std::to_string(step);
    ensure(std::memcmp(recv.image(), got.data(), recv.bytes()) == 0, name + ": other results");
    ensure(device.residual(count) == host.residual(count), name + ": other residuals");
    rank.meet();
  }
}

}  // namespace

TEST_CASE("gpu: compressed calls give the host's bits") {
  const char* specs[] = {"topk:density=0.01,bypass=never",
                         "ar-topk:density=0.01,election=variance,bypass=never",
                         "exdyna:density=0.01,bypass=never",
                         "deft:density=0.01,bypass=never",
                         "topk:density=0.02,values=bf16,exchange=split,bypass=never",
                         "bf16:bypass=never",
                         "none"};
  const std::size_t count = on_gpu() ? std::size_t{3} << 20 : 30011;
  for (const Peers& peers : every_peer()) {
    if (peers.way == Way::all) continue;  // its transport serves no other communicator
    for (const char* spec : specs) {
      if (spec == specs[4] && !thorough()) break;
      check(2, setup_of(peers), std::string(peers.name) + ", " + spec,
            [&](Rank& rank) { run_scheme(rank, spec, count); });
    }
  }
}
