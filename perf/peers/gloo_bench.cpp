// Gloo's collectives over loopback TCP, timed by the loop that times Pith.
#include <fmt/core.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "bench_collective.hpp"
#include "bench_common.hpp"

namespace {

using pith_bench::Collective;
using pith_bench::Settings;
using pith_bench::World;
using GlooContext = std::shared_ptr<gloo::Context>;
using Options = gloo::AllreduceOptions;

// gloo::allreduce: ring (Gloo's default) and bcube, out of place.
class Function final : public pith_bench::Contender {
 public:
  Function(GlooContext context, Options::Algorithm algorithm)
      : context_(std::move(context)), algorithm_(algorithm) {}
  void prepare(const float* send, float* recv, std::size_t count) override {
    options_ = std::make_unique<Options>(context_);
    options_->setAlgorithm(algorithm_);
    options_->setInput(const_cast<float*>(send), count);
    options_->setOutput(recv, count);
    options_->setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  }
  void call() override { gloo::allreduce(*options_); }

 private:
  GlooContext context_;
  Options::Algorithm algorithm_;
  std::unique_ptr<Options> options_;
};

// The algorithm classes work in place only, so a call includes the copy from send to recv.
template <class Algorithm>
class InPlace final : public pith_bench::Contender {
 public:
  explicit InPlace(GlooContext context) : context_(std::move(context)) {}
  void prepare(const float* send, float* recv, std::size_t count) override {
    send_ = send;
    recv_ = recv;
    count_ = count;
    algorithm_ =
        std::make_unique<Algorithm>(context_, std::vector<float*>{recv}, static_cast<int>(count));
  }
  void call() override {
    std::memcpy(recv_, send_, count_ * sizeof(float));
    algorithm_->run();
  }

 private:
  GlooContext context_;
  std::unique_ptr<Algorithm> algorithm_;
  const float* send_ = nullptr;
  float* recv_ = nullptr;
  std::size_t count_ = 0;
};

// allgather, broadcast and alltoall, which have one algorithm each.
template <class MoveOptions>
class Move final : public pith_bench::Contender {
 public:
  Move(GlooContext context, Collective collective, void (*run)(MoveOptions&))
      : context_(std::move(context)), collective_(collective), run_(run) {}
  void prepare(const float* send, float* recv, std::size_t count) override {
    options_ = std::make_unique<MoveOptions>(context_);
    float* const own = const_cast<float*>(send);
    if constexpr (std::is_same_v<MoveOptions, gloo::BroadcastOptions>) {
      options_->setRoot(0);
      options_->setOutput(context_->rank == 0 ? own : recv, count);
    } else {
      options_->setInput(own, pith_bench::sent_count(collective_, count, context_->size));
      options_->setOutput(recv, count);
    }
  }
  void call() override { run_(*options_); }

 private:
  GlooContext context_;
  Collective collective_;
  void (*run_)(MoveOptions&);
  std::unique_ptr<MoveOptions> options_;
};

std::unique_ptr<pith_bench::Contender> contender(Collective collective,
                                                 const std::string& algorithm,
                                                 const GlooContext& context) {
  switch (collective) {
    case Collective::allreduce:
      break;
    case Collective::allgather:
      return std::make_unique<Move<gloo::AllgatherOptions>>(context, collective, gloo::allgather);
    case Collective::broadcast:
      return std::make_unique<Move<gloo::BroadcastOptions>>(context, collective, gloo::broadcast);
    case Collective::alltoall:
      return std::make_unique<Move<gloo::AlltoallOptions>>(context, collective, gloo::alltoall);
    case Collective::reduce_scatter:
      throw std::invalid_argument("Gloo's reduce-scatter is left out: it has no function of it");
  }
  if (algorithm == "ring") return std::make_unique<Function>(context, Options::Algorithm::RING);
  if (algorithm == "bcube") return std::make_unique<Function>(context, Options::Algorithm::BCUBE);
  if (algorithm == "ring_chunked") {
    return std::make_unique<InPlace<gloo::AllreduceRingChunked<float>>>(context);
  }
  if (algorithm == "halving_doubling") {
    return std::make_unique<InPlace<gloo::AllreduceHalvingDoubling<float>>>(context);
  }
  return std::make_unique<Function>(context, Options::Algorithm::UNSPECIFIED);
}

GlooContext connect(const World& world, gloo::rendezvous::Store& store) {
  gloo::transport::tcp::attr where("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(where);
  auto context = std::make_shared<gloo::rendezvous::Context>(world.rank(), world.ranks());
  context->connectFullMesh(store, device);
  return context;
}

// A temporary folder for the file store.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gloo-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder " + pattern);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int run(const Settings& settings, const std::string& algorithm) {
  const Folder folder;
  std::unique_ptr<gloo::rendezvous::Store> store;
  if (settings.threads) {
    store = std::make_unique<gloo::rendezvous::HashStore>();
  } else {
    store = std::make_unique<gloo::rendezvous::FileStore>(folder.path());
  }
  return pith_bench::run_ranks(settings, [&](World& world) {
    const GlooContext context = connect(world, *store);
    const auto timed = contender(settings.collective, algorithm, context);
    const auto rows = pith_bench::measure(settings, world, *timed);
    const std::string version =
        fmt::format("Gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
    if (world.rank() == 0) {
      pith_bench::report(settings, {"gloo", version, "tcp on loopback", algorithm}, rows);
    }
    world.barrier();
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("times a collective of Gloo over loopback TCP, float32, sum, root 0");
  Settings settings;
  std::string algorithm = "default";
  pith_bench::add_options(app, settings);
  pith_bench::add_collective_option(app, settings);
  app.get_option("--transport")->description("ignored: always TCP on loopback");
  app.get_option("--memory")->description("ignored: Gloo has no memory of its own");
  app.add_option("--algorithm", algorithm, "Gloo's all-reduce algorithm")
      ->check(CLI::IsMember({"default", "ring", "bcube", "ring_chunked", "halving_doubling"}));
  return pith_bench::bench_main(app, argc, argv, [&] {
    settings.memory = "private";
    return run(settings, algorithm);
  });
}
