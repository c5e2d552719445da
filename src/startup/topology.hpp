// Packages, NUMA nodes, caches and cores of this machine, by hwloc. HWLOC_SYNTHETIC and hwloc's
// other variables apply. Without hwloc, or where it fails, only the host is known.
#pragma once

#include <memory>
#include <span>

#include "startup/locality.hpp"

namespace pith {

class Topology {
 public:
  // Reads the machine; takes milliseconds.
  Topology();
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  // For a thread that may run on these CPUs, in the system's numbers.
  Locality locate(std::span<const int> cpus) const;
  // For the calling thread, as it is bound now.
  Locality locate_this_thread() const;

 private:
  struct Machine;
  std::unique_ptr<Machine> machine_;  // null: only the host is known
};

// For the calling thread. The machine is read once in a process. Thread-safe.
Locality own_locality();

}  // namespace pith
