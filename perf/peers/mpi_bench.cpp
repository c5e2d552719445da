// A collective of Open MPI or MPICH, timed by the same loop as Pith. Run it under the mpirun of the
// library that it was built with.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <stdexcept>

#include "bench_collective.hpp"
#include "peers/mpi_world.hpp"

namespace {

using pith_bench::Collective;
using pith_bench::Settings;

class Mpi final : public pith_bench::Contender {
 public:
  Mpi(const Settings& settings, int rank)
      : collective_(settings.collective), ranks_(settings.ranks), rank_(rank) {}

  void* allocate(std::size_t bytes) override {
    void* pointer = nullptr;
    MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), MPI_INFO_NULL, &pointer);
    return pointer;
  }
  void release(void* pointer) override { MPI_Free_mem(pointer); }
  void prepare(const float* send, float* recv, std::size_t count) override {
    if (count > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      throw std::runtime_error(fmt::format("{} elements are too many for MPI", count));
    }
    send_ = send;
    recv_ = recv;
    count_ = static_cast<int>(count);
  }
  void call() override {
    const int block = count_ / ranks_;
    switch (collective_) {
      case Collective::allreduce:
        MPI_Allreduce(send_, recv_, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Collective::allgather:
        MPI_Allgather(send_, block, MPI_FLOAT, recv_, block, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Collective::broadcast:
        MPI_Bcast(rank_ == 0 ? const_cast<float*>(send_) : recv_, count_, MPI_FLOAT, 0,
                  MPI_COMM_WORLD);
        break;
      case Collective::reduce_scatter:
        MPI_Reduce_scatter_block(send_, recv_, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Collective::alltoall:
        MPI_Alltoall(send_, block, MPI_FLOAT, recv_, block, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    }
  }

 private:
  const Collective collective_;
  const int ranks_;
  const int rank_;
  const float* send_ = nullptr;
  float* recv_ = nullptr;
  int count_ = 0;
};

#ifdef MPICH_VERSION
pith_bench::Identity identity() {
  return {"mpich", pith_bench::mpi_library(), pith_bench::mpi_links(), "algorithm own choice"};
}
#else
pith_bench::Identity identity() {
  const std::string algorithm =
      pith_bench::mpi_variable("OMPI_MCA_coll_tuned_allreduce_algorithm", "own choice");
  return {"openmpi", pith_bench::mpi_library(), pith_bench::mpi_links(),
          fmt::format("algorithm {}", algorithm)};
}
#endif

int run(const Settings& settings) {
  if (settings.threads) throw std::runtime_error("--threads: MPI ranks are processes");
  pith_bench::MpiWorld world = pith_bench::mpi_world(settings);
  Mpi contender(settings, world.rank());
  const auto rows = pith_bench::measure(settings, world, contender);
  if (world.rank() == 0) pith_bench::report(settings, identity(), rows);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("times a collective of MPI, float32, sum, root 0; run it under mpirun");
  Settings settings;
  pith_bench::add_options(app, settings);
  pith_bench::add_collective_option(app, settings);
  app.get_option("--transport")->description("ignored: mpirun --mca chooses it");
  return pith_bench::mpi_main(app, argc, argv, [&] { return run(settings); });
}
