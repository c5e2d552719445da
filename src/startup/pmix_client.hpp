// What Pith needs of PMIx, by which Open MPI's mpirun and others give their processes a place to
// leave values for each other. The library is loaded when it is first needed.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.hpp"

namespace pith {

class PmixClient {
 public:
  // Introduces this process to its launcher; says goodbye at the end. Counts with other users of
  // PMIx in the process, as MPI.
  static Expected<PmixClient> open();
  PmixClient() = default;
  PmixClient(PmixClient&& other) noexcept;
  PmixClient& operator=(PmixClient&& other) noexcept;
  ~PmixClient();

  // For the other processes of the job, after the next fence.
  Error put(const std::string& key, const std::string& value);
  // Waits for all processes of the job.
  Error fence(double timeout_s);
  // What that rank has put before the last fence.
  Expected<std::string> get(int rank, const std::string& key, double timeout_s);

 private:
  struct Library;
  Library* library_ = nullptr;
  std::string job_;
};

}  // namespace pith
