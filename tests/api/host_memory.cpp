#include <cstdlib>
#include <new>

#include "memory_kind.hpp"
#include "ranks.hpp"

namespace ranks {

char* allocate(std::size_t bytes, bool registered) {
  if (!registered) return static_cast<char*>(::operator new(bytes));
  void* memory = nullptr;
  ok(pithMemAlloc(&memory, bytes));
  return static_cast<char*>(memory);
}

void release(char* memory, bool registered) {
  if (registered) {
    pithMemFree(memory);
  } else {
    ::operator delete(memory);
  }
}

pithStream_t stream_of_thread() { return nullptr; }
void wait_for_stream() {}
int most_ranks_everywhere() { return most_ranks; }

std::vector<Setup> every_link() {
  std::vector<Setup> setups(3);
  setups[0].transport = "shm";
  setups[1].transport = "tcp";
  setups[2].way = Way::all;
  setups[2].transport = "local";
#if defined(PITH_UCX)
  // UCX starts slowly; tests of collectives and of the transport run over it every time.
  if (std::getenv("PITH_TEST_FULL")) setups.emplace_back().transport = "ucx";
#endif
  // For machines that have what others lack: see tests/rdma.
  if (const char* only = std::getenv("PITH_TEST_LINK")) {
    Setup setup;
    setup.transport = only;
    setups.assign(1, setup);
  }
  return setups;
}

}  // namespace ranks
