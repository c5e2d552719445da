// Packages, NUMA nodes, caches and cores of this machine, by hwloc: what it takes to tell where a
// rank runs. HWLOC_SYNTHETIC and hwloc's other variables have the meaning that they have there.
// Where there is no hwloc, or where it fails, the host alone is known.
#pragma once

#include <memory>
#include <span>

#include "startup/locality.hpp"

namespace pith {

class Topology {
 public:
  // Reads the machine, which takes milliseconds.
  Topology();
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  // Of a thread that may run on these CPUs, by the system's numbers.
  Locality locate(std::span<const int> cpus) const;
  // Of the calling thread, as it is bound now.
  Locality locate_this_thread() const;

 private:
  struct Machine;
  std::unique_ptr<Machine> machine_;  // null: nothing is known
};

// Of the calling thread; the machine is read once in a process. Any thread.
Locality own_locality();

}  // namespace pith
