// Low-rank calls on device memory beside the host's. Projections add in another order there, so
// that results are equal up to rounding, and on all ranks of a side the same bits.
#include "tests/catch.hpp"
#include "tests/cuda/compressed_world.hpp"

namespace pith::cuda::test {

namespace {

void state_shape(const Side& side) {
  const std::size_t rows[] = {100, 40, 1};
  const std::size_t columns[] = {120, 3, side.count() - 12120};
  for (const pithCompressor_t compressor : side.compressors) {
    REQUIRE(pithCompressorSetShape(compressor, rows, columns, 3) == pithSuccess);
  }
}

float float_at(const std::byte* values, std::size_t i) {
  float value = 0;
  std::memcpy(&value, values + i * sizeof value, sizeof value);
  return value;
}

// Of gradients below 1.
std::string differences_in(const Twins& twins) {
  constexpr float rounding = 1e-4f;
  for (std::size_t r = 0; r < twins.got.size(); ++r) {
    const auto* const there = twins.buffers.recv[r]->as<std::byte>();
    if (std::memcmp(there, twins.buffers.recv[0]->as<std::byte>(), twins.device.bytes()) != 0) {
      return "ranks have other results";
    }
    const std::vector<float> ours = twins.device.residual(r);
    const std::vector<float> theirs = twins.host.residual(r);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const float result = float_at(there, i) - float_at(twins.got[r].data(), i);
      if (std::fabs(result) < rounding && std::fabs(ours[i] - theirs[i]) < rounding) continue;
      return "rank " + std::to_string(r) + ", element " + std::to_string(i) + ": result off by " +
             std::to_string(result) + ", residual by " + std::to_string(ours[i] - theirs[i]);
    }
  }
  return {};
}

std::string low_rank_step(const Comms& on_device, const Comms& on_host, Twins& twins,
                          unsigned number, Input input) {
  const std::vector<Values> sent = gradients(twins.host, number);
  issue_on_device(on_device, twins.device, twins.buffers, sent, input, pithAvg);
  REQUIRE(pithGroupStart() == pithSuccess);
  issue_on_host(on_host, twins.host, sent, twins.got, input, pithAvg);
  REQUIRE(pithGroupEnd() == pithSuccess);
  on_device.synchronize();
  return differences_in(twins);
}

}  // namespace

TEST_CASE("matrices are sent as factors from device memory as from the host's") {
  const Device device;
  const std::size_t ranks = GENERATE(1, 2, 3);
  const std::size_t count = GENERATE(777, 12121, 40000);
  INFO(count << " elements on " << ranks << " ranks");
  const Comms on_device(ranks);
  const Comms on_host(ranks);
  Twins twins(ranks, "powersgd:rank=3", count);
  if (count > 12120) {
    state_shape(twins.device);
    state_shape(twins.host);
  }
  for (unsigned number = 0; number < 4; ++number) {
    const Input input = number % 2 == 0 ? Input::apart : Input::in_place;
    REQUIRE(low_rank_step(on_device, on_host, twins, number, input) == "");
  }
}

TEST_CASE("factors of ranks on devices and of ranks on hosts are summed together") {
  const Device device;
  const std::size_t count = GENERATE(900, 40000);
  const Comms comms(2);
  Twins twins(2, "powersgd:rank=2,start=1", count);
  for (unsigned number = 0; number < 3; ++number) {
    const std::vector<Values> sent = gradients(twins.device, number);
    std::memcpy(twins.buffers.send[0]->as<void>(), sent[0].data(), twins.device.bytes());
    Values got(twins.device.bytes());
    REQUIRE(pithGroupStart() == pithSuccess);
    REQUIRE(pithAllReduceCompressed(twins.buffers.send[0]->as<void>(),
                                    twins.buffers.recv[0]->as<void>(), count, pithFloat32, pithSum,
                                    twins.device.compressors[0], comms.comms[0],
                                    *comms.streams[0]) == pithSuccess);
    REQUIRE(pithAllReduceCompressed(sent[1].data(), got.data(), count, pithFloat32, pithSum,
                                    twins.host.compressors[1], comms.comms[1],
                                    nullptr) == pithSuccess);
    REQUIRE(pithGroupEnd() == pithSuccess);
    comms.synchronize();
    CHECK(std::memcmp(twins.buffers.recv[0]->as<void>(), got.data(), got.size()) == 0);
  }
}

TEST_CASE("a state with factors goes between host and device") {
  const Device device;
  const Comms on_device(2);
  const Comms on_host(2);
  Twins twins(2, "powersgd", 12000);
  for (unsigned number = 0; number < 3; ++number) {
    REQUIRE(low_rank_step(on_device, on_host, twins, number, Input::apart) == "");
  }
  for (std::size_t r = 0; r < 2; ++r) {
    const std::vector<char> state = twins.host.saved(r);
    pithCompressor_t fresh = nullptr;
    REQUIRE(pithCompressorCreate(&fresh, "powersgd") == pithSuccess);
    REQUIRE(pithCompressorLoad(fresh, state.data(), state.size()) == pithSuccess);
    std::swap(fresh, twins.device.compressors[r]);
    REQUIRE(pithCompressorDestroy(fresh) == pithSuccess);
  }
  CHECK(low_rank_step(on_device, on_host, twins, 3, Input::apart) == "");
}

TEST_CASE("factors of a gradient that is not finite reach no rank") {
  const Device device;
  const Comms on_device(2);
  const Comms on_host(2);
  Twins twins(2, "powersgd:rank=2", 20000);
  REQUIRE(low_rank_step(on_device, on_host, twins, 0, Input::apart) == "");
  std::vector<Values> sent = gradients(twins.device, 1);
  const std::uint32_t infinite = 0x7f800000;
  std::memcpy(&sent[1][400], &infinite, sizeof infinite);
  issue_on_device(on_device, twins.device, twins.buffers, sent, Input::apart, pithSum);
  REQUIRE(pithGroupStart() == pithSuccess);
  issue_on_host(on_host, twins.host, sent, twins.got, Input::apart, pithSum);
  REQUIRE(pithGroupEnd() == pithSuccess);
  on_device.synchronize();
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(std::isnan(float_at(twins.buffers.recv[r]->as<std::byte>(), 9999)));
  }
  CHECK(low_rank_step(on_device, on_host, twins, 2, Input::apart) == "");
}

}  // namespace pith::cuda::test
