// All-reduces on one GPU by NCCL's symbols, whoever answers them: ranks in threads or in processes.
//   gpu_calls threads|processes RANKS FILE
// appends a line of JSON a size. Times are medians, by events on rank 0's stream, all ranks calling
// at once. "of copy": N copies of the vector by the device in the time of the call of N ranks, for
// each vector is read and each result written at least once. Run by tools/gpu/run.sh.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "nccl/abi.h"

#define CALLS_DECLARE(result, name, parameters) extern "C" result name parameters;
NCCL_FUNCTIONS(CALLS_DECLARE)

namespace {

constexpr int rounds = 30, warm_ups = 20;
constexpr std::size_t sizes[] = {8, 64 << 10, 1 << 20, 64 << 20, 256 << 20};

void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "gpu_calls: %s: %s; %s\n", what, cudaGetErrorString(cudaGetLastError()),
               ncclGetLastError(nullptr));
  std::_Exit(1);
}
#define CUDA(call) check((call) == cudaSuccess, #call)
#define NCCL(call) check((call) == ncclSuccess, #call)

struct Shared {
  std::atomic<int> ready;
  ncclUniqueId id;
};

float median(std::vector<float> ms) {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

template <class Work>
float time_of(cudaStream_t stream, Work work) {
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  CUDA(cudaEventRecord(begin, stream));
  work();
  CUDA(cudaEventRecord(end, stream));
  CUDA(cudaEventSynchronize(end));
  float ms = 0;
  CUDA(cudaEventElapsedTime(&ms, begin, end));
  CUDA(cudaEventDestroy(begin));
  CUDA(cudaEventDestroy(end));
  return ms;
}

void measure(ncclComm_t comm, int rank, int ranks, std::size_t bytes, cudaStream_t stream,
             const char* way, std::FILE* out) {
  const std::size_t count = bytes / sizeof(float);
  float *send = nullptr, *recv = nullptr;
  CUDA(cudaMalloc(&send, bytes));
  CUDA(cudaMalloc(&recv, bytes));
  std::vector<float> host(count);
  for (std::size_t i = 0; i < count; ++i) host[i] = static_cast<float>(i % 1000 + rank);
  CUDA(cudaMemcpyAsync(send, host.data(), bytes, cudaMemcpyHostToDevice, stream));
  std::vector<float> calls, copies;
  for (int round = -warm_ups; round < rounds; ++round) {
    const float ms = time_of(stream, [&] {
      NCCL(ncclAllReduce(send, recv, count, ncclFloat32, ncclSum, comm, stream));
    });
    if (round >= 0) calls.push_back(ms);
  }
  CUDA(cudaMemcpyAsync(host.data(), recv, bytes, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (std::size_t i = 0; i < count; ++i) {
    const int inputs = ranks * static_cast<int>(i % 1000) + ranks * (ranks - 1) / 2;
    const auto sum = static_cast<float>(inputs);
    check(host[i] == sum, "a sum is wrong");
  }
  // The others wait in this call until rank 0 has measured its copies alone.
  for (int round = 0; rank == 0 && round < rounds; ++round) {
    copies.push_back(time_of(stream, [&] {
      CUDA(cudaMemcpyAsync(recv, send, bytes, cudaMemcpyDeviceToDevice, stream));
    }));
  }
  NCCL(ncclAllReduce(send, recv, count, ncclFloat32, ncclSum, comm, stream));
  CUDA(cudaStreamSynchronize(stream));
  if (rank == 0) {
    const double us = 1e3 * median(calls);
    const double bound = 1e3 * ranks * median(copies);
    std::printf("%-9s %d ranks %10zu B %10.1f us %6.3f of copy\n", way, ranks, bytes, us,
                bound / us);
    std::fprintf(out,
                 "{\"way\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"us\": %.2f, "
                 "\"of_copy\": %.4f}\n",
                 way, ranks, bytes, us, bound / us);
  }
  CUDA(cudaFree(send));
  CUDA(cudaFree(recv));
}

void run_rank(Shared& shared, int rank, int ranks, const char* way, const char* file) {
  CUDA(cudaSetDevice(0));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&shared.id));
    shared.ready = 1;
  }
  while (shared.ready == 0) usleep(1000);
  ncclComm_t comm = nullptr;
  NCCL(ncclCommInitRank(&comm, ranks, shared.id, rank));
  std::FILE* out = rank == 0 ? std::fopen(file, "a") : nullptr;
  check(rank != 0 || out, file);
  for (const std::size_t bytes : sizes) measure(comm, rank, ranks, bytes, stream, way, out);
  if (out) std::fclose(out);
  NCCL(ncclCommDestroy(comm));
  CUDA(cudaStreamDestroy(stream));
}

int wait_for_children(int ranks) {
  int bad = 0;
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    wait(&status);
    bad |= status;
  }
  return bad == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool threads = argc == 4 && std::strcmp(argv[1], "threads") == 0;
  const int ranks = argc == 4 ? std::atoi(argv[2]) : 0;
  if (ranks < 1 || (!threads && std::strcmp(argv[1], "processes") != 0)) {
    std::fprintf(stderr, "usage: gpu_calls threads|processes RANKS FILE\n");
    return 2;
  }
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "mmap");
  auto& shared = *static_cast<Shared*>(memory);
  std::vector<std::thread> all;
  for (int r = 0; r < ranks; ++r) {
    if (threads) {
      all.emplace_back([&shared, r, ranks, argv] { run_rank(shared, r, ranks, argv[1], argv[3]); });
    } else if (fork() == 0) {  // before anybody has used CUDA
      run_rank(shared, r, ranks, argv[1], argv[3]);
      std::_Exit(0);
    }
  }
  for (std::thread& thread : all) thread.join();
  return threads ? 0 : wait_for_children(ranks);
}
