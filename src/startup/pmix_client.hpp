// What Pith uses of PMIx, the key-value exchange that Open MPI's mpirun and others offer to their
// processes. The library is loaded at first use.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.hpp"

namespace pith {

class PmixClient {
 public:
  // PMIx_Init; the destructor finalizes. PMIx counts its users, so MPI in the same process is safe.
  static Expected<PmixClient> open();
  PmixClient() = default;
  PmixClient(PmixClient&& other) noexcept;
  PmixClient& operator=(PmixClient&& other) noexcept;
  ~PmixClient();

  // Visible to the other processes of the job after the next fence.
  Error put(const std::string& key, const std::string& value);
  // Waits for all processes of the job.
  Error fence(double timeout_s);
  // The value that `rank` put before the last fence.
  Expected<std::string> get(int rank, const std::string& key, double timeout_s);

 private:
  struct Library;
  Library* library_ = nullptr;
  std::string job_;
};

}  // namespace pith
