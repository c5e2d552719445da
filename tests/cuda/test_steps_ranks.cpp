// Who runs the steps of calls where nobody has said so (PITH_CUDA_STEPS): workers, unless ranks of
// several processes share a device, or the launch of one would wait for its end.
#include "tests/cuda/said_during.hpp"
#include "tests/cuda/views_ranks.hpp"

using namespace pith::cuda;
using namespace pith::cuda::views;
using pith::cuda::test::said_during;

namespace {

struct Steps {
  Way way;
  const char* transport;
  int devices;
  bool launched;
  const char* blocking = "0";  // CUDA_LAUNCH_BLOCKING
};

constexpr Steps every_step[] = {
    {Way::processes, "shm", 1, true},  {Way::processes, "tcp", 1, true},
    {Way::processes, "shm", 2, false}, {Way::processes, "shm", 2, true, "1"},
    {Way::threads, "shm", 1, false},   {Way::all, "local", 1, false}};

// Only workers are kernels whose blocks wait for each other.
void check_steps(Rank& rank, const Steps& steps) {
  const Gpu gpu(rank.rank % steps.devices);
  const ranks::Comm comm(rank.join());
  const Vector data(1000);
  for (int call = 0; call < 3; ++call) {
    fill(data.data(), data.count, rank.rank, 1);
    ok(pithAllReduce(data.data(), data.data(), data.count, pithUint32, pithSum, comm, gpu.stream));
    gpu.wait();
    ensure(data.data()[7] == value(0, 7, 1) + value(1, 7, 1), "wrong sum");
  }
  ensure((counters().blocks_together == 0) == steps.launched, "steps are run the other way");
  rank.meet();
}

}  // namespace

TEST_CASE("workers run the steps of calls unless processes share a device or launches wait") {
  for (const Steps& steps : every_step) {
    INFO(steps.transport << ", " << steps.devices << " devices");
    Setup setup;
    setup.way = steps.way;
    setup.transport = steps.transport;
    setup.environment = {{"PITH_LOG", "info"}, {"CUDA_LAUNCH_BLOCKING", steps.blocking}};
    std::string result;
    const std::string said = said_during(
        [&] { result = ranks::run(2, setup, [&](Rank& rank) { check_steps(rank, steps); }); });
    CHECK(result == "");
    const bool told = said.find("ranks of other processes use CUDA device 01") != std::string::npos;
    CHECK(told == (steps.launched && steps.devices == 1));
  }
}
