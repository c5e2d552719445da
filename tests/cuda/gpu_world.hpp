// Ranks on a device for the tests of test_cuda_gpu, which run over any driver: the stub where there
// is no GPU, and a real one. Nothing here looks into device memory, counts, or pauses a driver.
//
// What a rank needs is made before the ranks meet, and never freed: whoever makes or frees memory
// may wait for streams that wait for other ranks.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "catch.hpp"
#include "tests/cuda/rank_driver.hpp"

namespace pith::cuda::gpu {

using rank_driver::cu;
using rank_driver::good;
using ranks::ensure;
using ranks::ok;
using ranks::Rank;
using ranks::Setup;
using ranks::Way;

// By PITH_TEST_GPU: vectors and repetitions of a size that a GPU does at once.
bool on_gpu();
// Whether everything is run: on a GPU, and where there is time.
bool thorough();

// The first device made current in this thread, with streams of a caller.
struct Gpu {
  Gpu();
  Gpu(const Gpu&) = delete;
  void wait() const { good(cu().stream_synchronize(stream)); }
  CUcontext context;
  CUstream stream = nullptr;
  CUstream other = nullptr;
  CUstream copies = nullptr;  // of the test
};

CUevent new_event();
inline CUdeviceptr address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

// Device memory and its image on the host.
class Memory {
 public:
  Memory(const Gpu& gpu, std::size_t bytes);
  Memory(const Memory&) = delete;
  char* at(std::size_t offset = 0) const { return reinterpret_cast<char*>(address_) + offset; }
  CUdeviceptr address() const { return static_cast<CUdeviceptr>(address_); }
  std::size_t bytes() const { return bytes_; }
  char* image() const { return image_; }
  std::uint32_t* words() const { return reinterpret_cast<std::uint32_t*>(image_); }
  float* floats() const { return reinterpret_cast<float*>(image_); }
  void put() const;  // image to device
  void get() const;
  void fill(unsigned char value) const;  // on the device

 private:
  const Gpu& gpu_;
  std::uintptr_t address_ = 0;
  char* image_ = nullptr;
  std::size_t bytes_;
};

// A pinned word, zero.
class Word {
 public:
  Word();
  CUdeviceptr address() const { return address_of(word_); }
  void set(std::uint64_t value) { std::atomic_ref(*word_).store(value); }

 private:
  std::uint64_t* word_ = nullptr;
};

std::uint32_t value_of(int rank, std::size_t i, unsigned round);
void fill(const Memory& memory, int rank, unsigned round);
std::uint32_t sum_of(int ranks, std::size_t i, unsigned round);
// Of vectors that were filled so; `times`: how often each was added.
void ensure_sum(const Memory& memory, int ranks, unsigned round, std::uint32_t times = 1,
                ranks::Where where = ranks::Where::current());
pithResult_t all_reduce(const Memory& send, const Memory& recv, pithComm_t comm, CUstream stream);
// A first call of this communicator and a second one of the same kind, to their ends.
void warm_up(Rank& rank, const Gpu& gpu, pithComm_t comm, const Memory& send, const Memory& recv);

struct Peers {
  const char* name;
  Way way;
  const char* transport;
};
// Processes, and where there is time also threads and, but on a GPU, InitAll.
std::vector<Peers> every_peer();
Setup setup_of(const Peers& peers);
// Runs the body; what failed is said with the name.
void check(int ranks, const Setup& setup, const std::string& name, const ranks::Body& body);

}  // namespace pith::cuda::gpu
