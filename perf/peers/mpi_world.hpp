// Shared by the programs over MPI, which must run under the mpirun of the library that they were
// built with.
#pragma once

#include <fmt/core.h>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>

#include "bench_common.hpp"
#include "machine.hpp"

namespace pith_bench {

// MPI_COMM_WORLD keeps its default error handler: an error ends the job with a message.
class MpiWorld final : public World {
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

// This process's world; binds the process to its core. Throws if mpirun has another number of
// ranks.
inline MpiWorld mpi_world(const Settings& settings) {
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != settings.ranks) {
    throw std::runtime_error(fmt::format("--ranks is {}, mpirun has {}", settings.ranks, ranks));
  }
  if (settings.pin) pin_to_core(rank);
  return MpiWorld(rank, ranks);
}

// An environment variable that mpirun passed on.
inline std::string mpi_variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

// With its version.
inline std::string mpi_library() {
#ifdef MPICH_VERSION
  return fmt::format("MPICH {}", MPICH_VERSION);
#else
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return text.substr(0, std::min(text.find(','), static_cast<std::size_t>(length)));
#endif
}

inline std::string mpi_links() {
#ifdef MPICH_VERSION
  return fmt::format("UCX over {}", mpi_variable("UCX_TLS", "any"));
#else
  const std::string pml = mpi_variable("OMPI_MCA_pml", "default");
  const std::string links =
      pml == "ucx" ? mpi_variable("UCX_TLS", "any") : mpi_variable("OMPI_MCA_btl", "any");
  return fmt::format("pml {} over {}", pml, links);
#endif
}

// bench_main() between MPI_Init and MPI_Finalize; a rank that fails ends the others.
inline int mpi_main(CLI::App& app, int argc, char** argv, const std::function<int()>& body) {
  MPI_Init(&argc, &argv);
  const int status = bench_main(app, argc, argv, body);
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}

}  // namespace pith_bench
