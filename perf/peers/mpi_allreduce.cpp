// MPI_Allreduce of Open MPI or MPICH, timed by the loop that times Pith. Run it under the mpirun of
// the library that it was built with.
#include <fmt/core.h>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "bench_common.hpp"
#include "machine.hpp"

namespace {

using pith_bench::Settings;

class MpiWorld final : public pith_bench::World {
 public:
  using World::World;
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  double max(double value) override {
    double largest = 0;
    MPI_Allreduce(&value, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return largest;
  }
  void share(void* data, std::size_t bytes) override {
    MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
  }
};

// MPI_COMM_WORLD keeps its default error handler: an error ends the job with a message.
class Mpi final : public pith_bench::Contender {
 public:
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
  void all_reduce() override {
    MPI_Allreduce(send_, recv_, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

 private:
  const float* send_ = nullptr;
  float* recv_ = nullptr;
  int count_ = 0;
};

// The variables that chose this run's settings, as mpirun hands them on.
std::string variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

#ifdef MPICH_VERSION
pith_bench::Identity identity() {
  return {"mpich", fmt::format("MPICH {}", MPICH_VERSION),
          fmt::format("UCX over {}", variable("UCX_TLS", "any")), "algorithm own choice"};
}
#else
std::string library() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return text.substr(0, std::min(text.find(','), static_cast<std::size_t>(length)));
}

pith_bench::Identity identity() {
  const std::string pml = variable("OMPI_MCA_pml", "default");
  const std::string links =
      pml == "ucx" ? variable("UCX_TLS", "any") : variable("OMPI_MCA_btl", "any");
  const std::string algorithm = variable("OMPI_MCA_coll_tuned_allreduce_algorithm", "own choice");
  return {"openmpi", library(), fmt::format("pml {} over {}", pml, links),
          fmt::format("algorithm {}", algorithm)};
}
#endif

int run(Settings settings) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != settings.ranks) {
    throw std::runtime_error(fmt::format("--ranks is {}, mpirun has {}", settings.ranks, ranks));
  }
  if (settings.threads) throw std::runtime_error("--threads: MPI ranks are processes");
  if (settings.pin) pith_bench::pin_to_core(rank);
  MpiWorld world(rank, ranks);
  Mpi contender;
  const auto rows = pith_bench::measure(settings, world, contender);
  if (rank == 0) pith_bench::report(settings, identity(), rows);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("times MPI_Allreduce, float32 sum; run it under mpirun");
  Settings settings;
  pith_bench::add_options(app, settings);
  app.get_option("--transport")->description("ignored: mpirun --mca chooses it");
  MPI_Init(&argc, &argv);
  const int status = pith_bench::bench_main(app, argc, argv, [&] { return run(settings); });
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
