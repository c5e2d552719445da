// Buffers of the API's tests in the stub driver's device memory.
#include <map>
#include <mutex>

#include "tests/api/memory_kind.hpp"
#include "tests/cuda/rank_driver.hpp"

namespace ranks {

namespace {

using pith::cuda::CUdeviceptr;
using pith::cuda::CUstream;
using pith::cuda::rank_driver::cu;
using pith::cuda::rank_driver::good;

// Ranks have a thread or a process of their own, and all of them one device.
struct Stream {
  Stream() {
    pith::cuda::rank_driver::make_current(0);
    good(cu().stream_create(&handle, pith::cuda::kStreamNonBlocking, 0));
  }
  ~Stream() { cu().stream_destroy(handle); }
  Stream(const Stream&) = delete;
  CUstream handle = nullptr;
};

// Nothing is freed: who frees memory waits for all streams, some of which wait for this rank.
class Kept {
 public:
  char* take(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto found = free_.lower_bound(bytes);
    if (found == free_.end() || found->first > 2 * bytes) return make(bytes);
    char* const memory = found->second;
    free_.erase(found);
    return memory;
  }
  void keep(char* memory) {
    const std::scoped_lock lock(mutex_);
    free_.emplace(sizes_.at(memory), memory);
  }

 private:
  char* make(std::size_t bytes) {
    CUdeviceptr address = 0;
    good(cu().mem_alloc(&address, bytes));
    char* const memory = reinterpret_cast<char*>(static_cast<std::uintptr_t>(address));
    sizes_[memory] = bytes;
    return memory;
  }

  std::mutex mutex_;
  std::multimap<std::size_t, char*> free_;
  std::map<char*, std::size_t> sizes_;
};

Kept& kept() {
  static Kept all;
  return all;
}

}  // namespace

pithStream_t stream_of_thread() {
  thread_local const Stream stream;
  return stream.handle;
}

void wait_for_stream() { good(cu().stream_synchronize(static_cast<CUstream>(stream_of_thread()))); }

char* allocate(std::size_t bytes, bool) {
  stream_of_thread();  // makes the device's context current
  return kept().take(bytes > 0 ? bytes : 1);
}

void release(char* memory, bool) { kept().keep(memory); }

// A core runs a kernel of the stub slowly.
int most_ranks_everywhere() { return 3; }

std::vector<Setup> every_link() {
  std::vector<Setup> setups(3);
  setups[0].transport = "shm";
  setups[1].way = Way::all;
  setups[1].transport = "local";
  setups[2].way = Way::threads;
  setups[2].transport = "shm";
  return setups;
}

}  // namespace ranks
