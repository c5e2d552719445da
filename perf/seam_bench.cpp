// Times a collective through the C API: what a caller waits for. With --ping-pong: a pithSend there
// and one back.
#include <fmt/core.h>
#include <pith/pith.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>

#include "bench_collective.hpp"
#include "bench_common.hpp"
#include "must.hpp"

namespace {

using pith_bench::Collective;
using pith_bench::must;
using pith_bench::Settings;
using pith_bench::World;

class Pith : public pith_bench::Contender {
 public:
  Pith(pithComm_t comm, const Settings& settings, int rank)
      : comm_(comm),
        rank_(rank),
        ranks_(static_cast<std::size_t>(settings.ranks)),
        collective_(settings.collective) {}
  ~Pith() override {
    // After an error the other ranks may never complete a collective.
    std::uncaught_exceptions() > 0 ? pithCommAbort(comm_) : pithCommDestroy(comm_);
  }

  void* allocate(std::size_t bytes) override {
    void* pointer = nullptr;
    must(pithMemAlloc(&pointer, bytes), "pithMemAlloc");
    return pointer;
  }
  void release(void* pointer) override { pithMemFree(pointer); }
  void prepare(const float* send, float* recv, std::size_t count) override {
    send_ = send;
    recv_ = recv;
    count_ = count;
  }
  void call() override {
    switch (collective_) {
      case Collective::allreduce:
        return must(pithAllReduce(send_, recv_, count_, pithFloat32, pithSum, comm_, nullptr),
                    "pithAllReduce");
      case Collective::allgather:
        return must(pithAllGather(send_, recv_, block(), pithFloat32, comm_, nullptr),
                    "pithAllGather");
      case Collective::broadcast:
        return broadcast();
      case Collective::reduce_scatter:
        return must(pithReduceScatter(send_, recv_, block(), pithFloat32, pithSum, comm_, nullptr),
                    "pithReduceScatter");
      case Collective::alltoall:
        return must(pithAlltoAll(send_, recv_, block(), pithFloat32, comm_, nullptr),
                    "pithAlltoAll");
    }
  }

 private:
  std::size_t block() const { return count_ / ranks_; }
  // In place at the root, as MPI's is.
  void broadcast() {
    void* const buffer = rank_ == 0 ? const_cast<float*>(send_) : recv_;
    must(pithBcast(buffer, count_, pithFloat32, 0, comm_, nullptr), "pithBcast");
  }

 protected:
  const pithComm_t comm_;
  const int rank_;
  const float* send_ = nullptr;
  float* recv_ = nullptr;
  std::size_t count_ = 0;

 private:
  const std::size_t ranks_;
  const Collective collective_;
};

class PingPong final : public Pith {
 public:
  using Pith::Pith;
  void call() override {
    if (rank_ == 0) send();
    must(pithRecv(recv_, count_, pithFloat32, 1 - rank_, comm_, nullptr), "pithRecv");
    if (rank_ == 1) send();
  }
  bool has_result() const override { return false; }

 private:
  void send() { must(pithSend(send_, count_, pithFloat32, 1 - rank_, comm_, nullptr), "pithSend"); }
};

pithComm_t join(World& world) {
  pithUniqueId id = {};
  if (world.rank() == 0) must(pithGetUniqueId(&id), "pithGetUniqueId");
  world.share(&id, sizeof(id));
  pithComm_t comm = nullptr;
  must(pithCommInitRank(&comm, world.ranks(), id, world.rank()), "pithCommInitRank");
  return comm;
}

pith_bench::Identity identity(const Settings& settings) {
  int version = 0;
  must(pithGetVersion(&version), "pithGetVersion");
  const std::string named = settings.transport.empty() ? "auto" : settings.transport;
  return {"pith", fmt::format("Pith {}.{}.{}", version / 10000, version / 100 % 100, version % 100),
          named, ""};
}

int run(const Settings& settings, bool ping_pong) {
  if (!settings.transport.empty()) setenv("PITH_TRANSPORT", settings.transport.c_str(), 1);
  std::vector<pithComm_t> comms;
  if (settings.threads) {
    comms.resize(static_cast<std::size_t>(settings.ranks));
    must(pithCommInitAll(comms.data(), settings.ranks, nullptr), "pithCommInitAll");
  }
  return pith_bench::run_ranks(settings, [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    pithComm_t comm = settings.threads ? comms[rank] : join(world);
    const std::unique_ptr<Pith> pith =
        ping_pong ? std::make_unique<PingPong>(comm, settings, world.rank())
                  : std::make_unique<Pith>(comm, settings, world.rank());
    const auto rows = pith_bench::measure(settings, world, *pith);
    if (rank == 0) pith_bench::report(settings, identity(settings), rows);
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("times a collective of Pith, float32, sum, root 0");
  Settings settings;
  pith_bench::add_options(app, settings);
  pith_bench::add_collective_option(app, settings);
  const auto transports = CLI::IsMember({"shm", "tcp", "local"});
  app.get_option("--transport")->check(transports)->description("sets PITH_TRANSPORT");
  bool ping_pong = false;
  app.add_flag("--ping-pong", ping_pong, "of 2 ranks: time a pithSend there and one back instead");
  return pith_bench::bench_main(app, argc, argv, [&] {
    if (ping_pong && settings.ranks != 2) throw std::invalid_argument("--ping-pong is of 2 ranks");
    return run(settings, ping_pong);
  });
}
