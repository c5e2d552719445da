// Compressed calls on device memory, beside the same calls on host memory.
#include <iterator>

#include "tests/cuda/compressed_world.hpp"
#include "tests/sanitized.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

// Steady, then far larger and far smaller than what was expected, then with what is left only.
std::string run_steps(std::size_t ranks, const std::string& spec, std::size_t count,
                      pithDataType_t type = pithFloat32) {
  const Comms on_device(ranks);
  const Comms on_host(ranks);
  Twins twins(ranks, spec, count, type);
  for (unsigned number = 0; number < 8; ++number) {
    const float size = number == 4 ? 64.0f : number == 5 ? 1.0f / 64 : 1.0f;
    const Input input = number == 3 ? Input::in_place : number == 6 ? Input::nothing : Input::apart;
    const pithRedOp_t op = number == 2 ? pithAvg : pithSum;
    std::string found = step(on_device, on_host, {&twins}, number, size, input, op);
    if (!found.empty()) return found;
  }
  return {};
}

std::string never_bypassed(const std::string& spec) {
  if (!pith::Spec::parse(spec)->sparse()) return spec;
  return spec + (spec.find(':') == std::string::npos ? ":" : ",") + "bypass=never";
}

}  // namespace

TEST_CASE("compressed calls of every scheme on device memory give the host's bits") {
  static constexpr const char* specs[] = {"topk:density=0.01",
                                          "topk:density=0.05,exchange=ring",
                                          "topk:density=0.01,exchange=recursive-doubling",
                                          "topk:density=0.02,exchange=split",
                                          "topk:density=0.02,values=int4",
                                          "topk:density=0.02,values=int8,exchange=ring",
                                          "none",
                                          "bf16",
                                          "int8",
                                          "qsgd:bits=2",
                                          "sign",
                                          "efsign",
                                          "terngrad",
                                          "onebit",
                                          "3lc:sparsity=1.5",
                                          "int8:feedback=1",
                                          "fp16",
                                          "fp8",
                                          "fp8:format=e5m2,feedback=1",
                                          "natural",
                                          "lossless",
                                          "qsgd",
                                          "qsgd:bits=8",
                                          "int8:map=dynamic",
                                          "signum",
                                          "bounded:feedback=1",
                                          "threshold:value=0.1",
                                          "sidco:density=0.02,values=bf16",
                                          "dgc:density=0.02,warmup=2,clip=3,exchange=ring",
                                          "dgc:density=0.01,values=f16",
                                          "clt-k:density=0.02,beta=0.5",
                                          "clt-k:density=0.01,beta=0.25,values=f16",
                                          "wangni:density=0.02",
                                          "adaptive:density=0.02,values=bf16",
                                          "randomk:density=0.01,values=bf16",
                                          "arc-topk:density=0.02",
                                          "arc-topk:density=0.05,sketch=1,values=bf16",
                                          "ar-topk:density=0.01",
                                          "ar-topk:density=0.02,values=bf16",
                                          "ar-topk:density=0.01,reduction=ring",
                                          "ar-topk:density=0.01,election=variance",
                                          "ar-topk:density=0.01,election=variance-lagged",
                                          "ar-topk:density=0.01,election=variance,score=raw",
                                          "ar-topk:density=0.01,election=variance-lagged,score=raw",
                                          "exdyna:density=0.01",
                                          "exdyna:density=0.02,values=bf16",
                                          "exdyna:density=0.01,rule=released",
                                          "exdyna:density=0.01,reduction=tree",
                                          "micro:density=0.01,values=f16",
                                          "spardl:density=0.02",
                                          "ok-topk:density=0.02,values=bf16",
                                          "gtopk:density=0.01",
                                          "gtopk:density=0.02,values=bf16",
                                          "deft:density=0.01",
                                          "deft:density=0.9",
                                          "deft:density=0.02,values=bf16",
                                          "deft:density=0.01,reduction=ring"};
  const test::Device device;
  const int ranks = GENERATE(2, 3, 4);
  const int which = GENERATE(range(0, static_cast<int>(std::size(specs))));
  const int size = GENERATE(0, 1, 2);
  if (!pith::test::is_turn(which + ranks + size, 0, 5)) return;
  const char* const spec = specs[which];
  const bool by_parts = std::string(spec).starts_with("exdyna") || spec[0] == 'm';
  const std::size_t counts[] = {1, 5003, by_parts ? 600000u : 300000u};
  const std::size_t count = counts[size];
  INFO(spec << " of " << count << " on " << ranks << " ranks");
  CHECK(run_steps(static_cast<std::size_t>(ranks), never_bypassed(spec), count) == "");
}

TEST_CASE("compressed calls on device memory: narrow values, no feedback, dense by themselves") {
  const test::Device device;
  const char* spec = GENERATE("topk:density=0.01,values=bf16,bypass=never",
                              "topk:density=0.02,values=f16,exchange=ring,bypass=never",
                              "topk:density=0.03,values=bf16,exchange=split,bypass=never",
                              "topk:density=0.01,feedback=0,bypass=never", "topk:density=0.9");
  const std::size_t count = GENERATE(777, 200001);
  INFO(spec << " of " << count);
  CHECK(run_steps(3, spec, count) == "");
}

TEST_CASE("compressed calls on device memory take gradients of 16 bits") {
  const test::Device device;
  const pithDataType_t type = GENERATE(pithFloat16, pithBfloat16);
  const char* spec = GENERATE("topk:density=0.01,bypass=never",
                              "topk:density=0.01,values=bf16,bypass=never", "none");
  INFO(spec);
  CHECK(run_steps(2, spec, 5003, type) == "");
  CHECK(run_steps(4, spec, 150000, type) == "");
}

TEST_CASE("exdyna in rounds on device memory writes its result in one piece") {
  const test::Device device;
  const Comms on_device(2);
  const Comms on_host(2);
  Twins twins(2, "exdyna:density=0.001,bypass=never", 1100000);  // two rounds
  CHECK(step(on_device, on_host, {&twins}, 0) == "");
}

TEST_CASE("compressed calls of a group on device memory are one call") {
  const test::Device device;
  const std::size_t ranks = GENERATE(2, 3);
  const Comms on_device(ranks);
  const Comms on_host(ranks);
  const char* spec = GENERATE(
      "topk:density=0.02,bypass=never", "ar-topk:density=0.02,values=f16,bypass=never",
      "exdyna:density=0.02,values=bf16,bypass=never", "deft:density=0.02,bypass=never", "none");
  INFO(spec << " on " << ranks << " ranks");
  Twins first(ranks, spec, 100);
  Twins second(ranks, spec, 170000);
  Twins third(ranks, spec, 0);
  Twins fourth(ranks, spec, 2000);
  Twins fifth(ranks, spec, 0);
  for (unsigned number = 0; number < 5; ++number) {
    CHECK(step(on_device, on_host, {&first, &second, &third, &fourth, &fifth}, number) == "");
  }
}

TEST_CASE("a compressed call starts when its stream reaches it, and does not block the caller") {
  const test::Device device;
  const Comms comms(2);
  const Side side(2, "topk:density=0.1,bypass=never", 5000, pithFloat32);
  const Buffers buffers(2, side.bytes());
  Words hold(1);
  const std::vector<Values> sent = gradients(side, 1);
  for (std::size_t r = 0; r < 2; ++r) {
    OK(cu().wait_value64(*comms.streams[r], hold.at(0), 1, kWaitValueGeq));
    std::memset(buffers.recv[r]->as<void>(), 0x5A, side.bytes());
  }
  issue_on_device(comms, side, buffers, sent, Input::apart, pithSum);
  sleep_ms(20);
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(cu().stream_query(*comms.streams[r]) == kErrorNotReady);
    CHECK(buffers.recv[r]->as<unsigned char>()[77] == 0x5A);
    // In flight it is nobody else's.
    float out = 0;
    CHECK(pithCompressorGetResidual(side.compressors[r], &out, 1) == pithInvalidUsage);
    CHECK(says("busy"));
  }
  hold[0].store(1, std::memory_order_release);
  comms.synchronize();
  for (std::size_t r = 0; r < 2; ++r) {
    pithCompressorStats_t stats;
    stats.size = sizeof stats;
    REQUIRE(pithCompressorGetStats(side.compressors[r], &stats) == pithSuccess);
    CHECK(stats.selected_local == 500);
    CHECK(stats.calls == 1);
    CHECK(stats.residual_norm > 0);
    CHECK(stats.bytes_sent > 0);
    CHECK(buffers.recv[r]->as<unsigned char>()[77] != 0x5A);
  }
}

TEST_CASE("what is not finite is told to all ranks, on device memory too") {
  const test::Device device;
  const char* spec =
      GENERATE("topk:density=0.01,bypass=never", "topk:nonfinite=drop,bypass=never",
               "ar-topk:density=0.01,bypass=never", "bf16:bypass=never",
               "exdyna:density=0.01,bypass=never", "topk:density=0.9", "none", "efsign", "onebit");
  INFO(spec);
  const Comms on_device(2);
  const Comms on_host(2);
  Twins twins(2, spec, 20000);
  REQUIRE(step(on_device, on_host, {&twins}, 0) == "");
  std::vector<Values> sent = gradients(twins.device, 1);
  const std::uint32_t infinite = 0x7f800000;
  std::memcpy(&sent[1][400], &infinite, sizeof infinite);
  issue_on_device(on_device, twins.device, twins.buffers, sent, Input::apart, pithSum);
  REQUIRE(pithGroupStart() == pithSuccess);
  issue_on_host(on_host, twins.host, sent, twins.got, Input::apart, pithSum);
  REQUIRE(pithGroupEnd() == pithSuccess);
  on_device.synchronize();
  CHECK(differences(twins.device, twins.buffers, twins.host, twins.got) == "");
  CHECK(step(on_device, on_host, {&twins}, 2) == "");
}

TEST_CASE("a compressor's state is saved and loaded, and goes between host and device") {
  const test::Device device;
  const char* spec = GENERATE(
      "topk:density=0.01,values=bf16,bypass=never", "exdyna:density=0.01,values=bf16,bypass=never",
      "topk:density=0.9", "int8:feedback=1", "efsign", "onebit", "signum", "bounded:feedback=1");
  INFO(spec);
  const Comms on_device(2);
  const Comms on_host(2);
  Twins twins(2, spec, 70000);
  for (unsigned number = 0; number < 3; ++number) {
    REQUIRE(step(on_device, on_host, {&twins}, number) == "");
  }
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(pithCompressorScale(twins.device.compressors[r], 0.5f) == pithSuccess);
    REQUIRE(pithCompressorScale(twins.host.compressors[r], 0.5f) == pithSuccess);
  }
  REQUIRE(step(on_device, on_host, {&twins}, 3) == "");
  for (std::size_t r = 0; r < 2; ++r) renew_on_device(twins, r, spec);
  CHECK(step(on_device, on_host, {&twins}, 4) == "");
  for (std::size_t r = 0; r < 2; ++r) {  // one that has a state adds what it loads
    const std::vector<char> state = twins.device.saved(r);
    REQUIRE(pithCompressorLoad(twins.device.compressors[r], state.data(), state.size()) ==
            pithSuccess);
    REQUIRE(pithCompressorLoad(twins.host.compressors[r], state.data(), state.size()) ==
            pithSuccess);
  }
  CHECK(step(on_device, on_host, {&twins}, 5) == "");
  // The next call of the device's compressors is one on host memory.
  std::vector<Values> got;
  const std::vector<Values> sent = gradients(twins.device, 6);
  REQUIRE(pithGroupStart() == pithSuccess);
  issue_on_host(on_device, twins.device, sent, got, Input::apart, pithSum);
  issue_on_host(on_host, twins.host, sent, twins.got, Input::apart, pithSum);
  REQUIRE(pithGroupEnd() == pithSuccess);
  CHECK(got == twins.got);
  CHECK(step(on_device, on_host, {&twins}, 7) == "");
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(pithCompressorReset(twins.device.compressors[r]) == pithSuccess);
    REQUIRE(pithCompressorReset(twins.host.compressors[r]) == pithSuccess);
  }
  CHECK(step(on_device, on_host, {&twins}, 8) == "");
}

TEST_CASE("a compressed call on device memory that fails keeps the gradient") {
  const test::Device device;
  const char* spec = GENERATE("topk:density=0.01,bypass=never",
                              "topk:density=0.01,values=bf16,"
                              "exchange=ring,bypass=never",
                              "topk:density=0.9", "none");
  INFO(spec);
  Comms comms(2);
  const Comms on_host(2);
  Twins twins(2, spec, 90000);
  REQUIRE(step(comms, on_host, {&twins}, 0) == "");
  const std::vector<float> before = twins.device.residual(0);
  const std::vector<Values> sent = gradients(twins.device, 1);
  std::memcpy(twins.buffers.send[0]->as<void>(), sent[0].data(), sent[0].size());
  // Rank 1 never calls.
  REQUIRE(pithAllReduceCompressed(twins.buffers.send[0]->as<void>(),
                                  twins.buffers.recv[0]->as<void>(), 90000, pithFloat32, pithSum,
                                  twins.device.compressors[0], comms.comms[0],
                                  *comms.streams[0]) == pithSuccess);
  sleep_ms(30);
  REQUIRE(pithCommAbort(comms.comms[1]) == pithSuccess);
  comms.comms[1] = nullptr;
  OK(cu().stream_synchronize(*comms.streams[0]));
  pithResult_t state = pithSuccess;
  REQUIRE(pithCommGetAsyncError(comms.comms[0], &state) == pithSuccess);
  CHECK(state != pithSuccess);
  std::vector<float> expected = before;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    float added = 0;
    std::memcpy(&added, &sent[0][4 * i], sizeof added);
    expected[i] += added;
  }
  const std::vector<float> after = twins.device.residual(0);
  // What was rounded to 16 bits and came back is the same up to a rounding.
  double worst = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    worst = std::max(worst, std::fabs(double(after[i]) - double(expected[i])));
  }
  CHECK(worst <= (std::string(spec).find("bf16") == std::string::npos ? 0 : 1e-6));
}

TEST_CASE("after a death survivors shrink and send what was kept, on device memory") {
  const test::Device device;
  constexpr std::size_t count = 40000;
  Comms comms(3);
  const Side side(3, "topk:density=0.05,bypass=never", count, pithFloat32);
  const Buffers buffers(3, side.bytes());
  issue_on_device(comms, side, buffers, gradients(side, 0), Input::apart, pithSum);
  comms.synchronize();
  std::vector<double> all(count);
  for (std::size_t r = 0; r < 2; ++r) {
    const std::vector<float> kept = side.residual(r);
    for (std::size_t i = 0; i < count; ++i) all[i] += double(kept[i]);
  }
  const std::vector<Values> sent = gradients(side, 1);
  for (std::size_t r = 0; r < 2; ++r) {
    std::memcpy(buffers.send[r]->as<void>(), sent[r].data(), side.bytes());
    const auto* added = reinterpret_cast<const float*>(sent[r].data());
    for (std::size_t i = 0; i < count; ++i) all[i] += double(added[i]);
    REQUIRE(pithAllReduceCompressed(buffers.send[r]->as<void>(), buffers.recv[r]->as<void>(), count,
                                    pithFloat32, pithSum, side.compressors[r], comms.comms[r],
                                    *comms.streams[r]) == pithSuccess);
  }
  sleep_ms(20);
  REQUIRE(pithCommAbort(comms.comms[2]) == pithSuccess);
  comms.comms[2] = nullptr;
  for (std::size_t r = 0; r < 2; ++r) OK(cu().stream_synchronize(*comms.streams[r]));

  int gone = 2;
  std::vector<pithComm_t> left(2);
  REQUIRE(pithGroupStart() == pithSuccess);
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(pithCommShrink(comms.comms[r], &gone, 1, &left[r], nullptr, PITH_SHRINK_DEFAULT) ==
            pithSuccess);
  }
  const pithResult_t shrunk = pithGroupEnd();
  INFO(pithGetLastError(nullptr));
  REQUIRE(shrunk == pithSuccess);
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(pithAllReduceCompressed(nullptr, buffers.recv[r]->as<void>(), count, pithFloat32,
                                    pithSum, side.compressors[r], left[r],
                                    *comms.streams[r]) == pithSuccess);
  }
  for (std::size_t r = 0; r < 2; ++r) OK(cu().stream_synchronize(*comms.streams[r]));
  CHECK(std::memcmp(buffers.recv[0]->as<void>(), buffers.recv[1]->as<void>(), side.bytes()) == 0);
  for (std::size_t r = 0; r < 2; ++r) {
    const std::vector<float> kept = side.residual(r);
    for (std::size_t i = 0; i < count; ++i) all[i] -= double(kept[i]);
  }
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::fabs(all[i] - double(buffers.recv[0]->as<float>()[i])));
  }
  CHECK(worst < 1e-6);
  for (const pithComm_t comm : left) CHECK(pithCommDestroy(comm) == pithSuccess);
}

// Bound to nothing: neither to a communicator nor to a count and type.
TEST_CASE("compressed calls on streams that are refused leave their compressors as they were") {
  const test::Device device;
  const Comms comms(1);
  const Comms others(1);
  DeviceMemory send(4000);
  DeviceMemory recv(4000);
  std::memset(send.as<void>(), 0, 4000);
  const void* from = send.as<void>();
  void* to = recv.as<void>();
  std::vector<float> plain(1000);
  const Side side(1, "topk", 10, pithFloat16);
  const auto call = [&](const void* gradient, const Comms& on) {
    return pithAllReduceCompressed(gradient, to, 1000, pithFloat32, pithSum, side.compressors[0],
                                   on.comms[0], *on.streams[0]);
  };
  const bool grouped = GENERATE(false, true);
  CAPTURE(grouped);
  const auto refused = [&](const void* gradient, const Comms& on) {
    if (!grouped) return call(gradient, on);
    REQUIRE(pithGroupStart() == pithSuccess);
    REQUIRE(call(gradient, on) == pithSuccess);
    return pithGroupEnd();
  };
  CHECK(refused(plain.data(), comms) == pithInvalidArgument);
  CHECK(says("pageable"));
  OK(cu().capture_begin(*comms.streams[0], kCaptureGlobal));
  CHECK(refused(from, comms) == pithInvalidUsage);
  CHECK(says("captured"));
  CUgraph graph = nullptr;
  OK(cu().capture_end(*comms.streams[0], &graph));
  OK(cu().graph_destroy(graph));
  // Another communicator's, of another size and type.
  CHECK(pithAllReduceCompressed(from, to, 10, pithFloat16, pithSum, side.compressors[0],
                                others.comms[0], *others.streams[0]) == pithSuccess);
  others.synchronize();
}

TEST_CASE("where one compressor of a call cannot go to a device, none has been touched") {
  const test::Device device;
  const Comms comms(1);
  const Side side(1, "topk", 1000, pithFloat32);
  const Side lent(1, "topk", 1000, pithFloat32);
  DeviceMemory send(4000);
  DeviceMemory recv(8000);
  std::memset(send.as<void>(), 0, 4000);
  void* accumulator = nullptr;
  REQUIRE(pithCompressorGetAccumulator(lent.compressors[0], &accumulator, 1000, pithFloat32) ==
          pithSuccess);
  const auto call = [&](const Side& of, std::size_t count, float* to) {
    return pithAllReduceCompressed(send.as<void>(), to, count, pithFloat32, pithSum,
                                   of.compressors[0], comms.comms[0], *comms.streams[0]);
  };
  REQUIRE(pithGroupStart() == pithSuccess);
  CHECK(call(side, 900, recv.as<float>()) == pithSuccess);
  CHECK(call(lent, 1000, recv.as<float>() + 1000) == pithSuccess);
  CHECK(pithGroupEnd() == pithInvalidUsage);
  CHECK(says("lent"));
  CHECK(call(side, 1000, recv.as<float>()) == pithSuccess);
  comms.synchronize();
}

TEST_CASE("compressed calls on host memory take streams, whatever the scheme") {
  const test::Device device;
  const char* spec = GENERATE("topk:density=0.05,bypass=never", "exdyna:density=0.05,bypass=never",
                              "ar-topk:density=0.05,bypass=never");
  INFO(spec);
  const Comms comms(2);
  const Comms on_host(2);
  const Side side(2, spec, 3000, pithFloat32);
  const Side twin(2, spec, 3000, pithFloat32);
  for (unsigned number = 0; number < 3; ++number) {
    const std::vector<Values> sent = gradients(side, number);
    std::vector<Values> got(2, Values(side.bytes() + 1));
    for (std::size_t r = 0; r < 2; ++r) {
      REQUIRE(pithAllReduceCompressed(sent[r].data(), got[r].data(), 3000, pithFloat32, pithSum,
                                      side.compressors[r], comms.comms[r],
                                      *comms.streams[r]) == pithSuccess);
    }
    comms.synchronize();
    std::vector<Values> expected;
    REQUIRE(pithGroupStart() == pithSuccess);
    issue_on_host(on_host, twin, sent, expected, Input::apart, pithSum);
    REQUIRE(pithGroupEnd() == pithSuccess);
    CHECK(got == expected);
    for (std::size_t r = 0; r < 2; ++r) CHECK(side.residual(r) == twin.residual(r));
  }
}

TEST_CASE("the steady state of compressed calls allocates nothing on the device") {
  const test::Device device;
  const char* spec = GENERATE("topk:density=0.01,bypass=never", "topk:density=0.9");
  INFO(spec);
  const Comms comms(2);
  const Side side(2, spec, 200000, pithFloat32);
  const Buffers buffers(2, side.bytes());
  const auto call = [&](unsigned number) {
    issue_on_device(comms, side, buffers, gradients(side, number), Input::apart, pithSum);
    comms.synchronize();
  };
  for (unsigned number = 0; number < 4; ++number) call(number);
  pithStubReset();
  for (unsigned number = 4; number < 12; ++number) call(number);
  StubCounters after;
  pithStubCounters(&after);
  CHECK(after.allocs == 0);
  CHECK(after.frees == 0);
  const bool dense = std::string(spec) == "topk:density=0.9";  // borrows messages in plain memory
  if (!dense) CHECK(after.pageable_copies == 0);
  CHECK(after.syncs == 16);  // the test's own
}
