// All-reduces on one GPU by NCCL's symbols, whoever answers them: ranks in threads or in processes.
//   gpu_calls threads|processes|hosts RANKS FILE [MOST_BYTES [LABEL]]
// appends a line of JSON a size. "hosts": processes that say by NCCL_HOSTID that each is on a host
// of its own, without which NVIDIA's library refuses two ranks on a device. LABEL is what the line
// calls the way. GPU_CALLS_TYPE=bfloat16: sums of as many elements of that type, else of float32.
// GPU_CALLS_BLOCKS=8,16,32: a communicator with each as PITH_CUDA_BLOCKS, their calls in turns.
// Where PITH_COMPRESS is set vectors are noise and their sums not looked at. Times are medians, by
// events on rank 0's stream, all ranks calling at once; "queued": so many calls one behind another
// without a look at them, the time of one. "of copy": N copies of the vector by the device in the
// time of the call of N ranks, for each vector is read and each result written at least once. Run
// by tools/gpu/run.sh; by the driver alone, so that the tests can run it over the stub.
//
// Memory is taken before anybody calls and freed when all have ended: freeing waits for streams
// that may wait for the rank that frees.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver_api.hpp"
#include "nccl/abi.h"

#define CALLS_DECLARE(result, name, parameters) extern "C" result name parameters;
NCCL_FUNCTIONS(CALLS_DECLARE)

namespace {

using namespace pith::cuda;

// Over slow links a large vector takes half a second.
struct Rounds {
  int warm_ups, timed;
};
constexpr Rounds rounds_of(std::size_t bytes) {
  return bytes < (std::size_t{16} << 20) ? Rounds{20, 30} : Rounds{8, 10};
}
constexpr std::size_t sizes[] = {8, 64 << 10, 1 << 20, 64 << 20, 256 << 20};
constexpr int queues[] = {16, 64};  // calls one behind another
constexpr std::size_t most_queued_bytes = 1 << 20;
constexpr int queue_rounds = 5;
constexpr double meeting_limit_s = 120;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "gpu_calls: %s; %s\n", what.c_str(), ncclGetLastError(nullptr));
  std::_Exit(1);
}

const Driver& cu() {
  static const Driver& driver = [&]() -> const Driver& {
    auto& loaded = *new Driver;
    std::string why;
    if (!load_driver(loaded, why)) fail(why);
    return loaded;
  }();
  return driver;
}

void check(CUresult result, const char* what) {
  if (result != kSuccess) fail(std::string(what) + ": " + cu().describe(result));
}
void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) fail(what);
}
#define CHECK(call) check((call), #call)

// Between the ranks, in threads or processes; all zero at first.
struct Shared {
  std::atomic<int> arrived;
  std::atomic<unsigned> meetings;
  ncclUniqueId id;
};

struct Run {
  Shared& shared;
  int ranks;
  const char* label;
  const char* file;
  std::size_t most_bytes;
  bool processes;
  std::vector<std::string> blocks;  // of each communicator; empty: as it is
  bool halves;                      // bfloat16
  bool compressed;                  // by the environment: vectors are noise, and sums not looked at
};

std::size_t bytes_of(const Run& run, std::size_t count) { return count * (run.halves ? 2 : 4); }

void meet(const Run& run) {
  const unsigned meeting = run.shared.meetings;
  if (run.shared.arrived.fetch_add(1) + 1 == run.ranks) {
    run.shared.arrived = 0;
    ++run.shared.meetings;
    return;
  }
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(meeting_limit_s);
  while (run.shared.meetings == meeting) {
    if (std::chrono::steady_clock::now() > limit) fail("the other ranks do not come");
    usleep(100);
  }
}

struct Comm {
  const std::string& blocks;
  ncclComm_t comm;
};

// One rank: its stream, and memory for the largest vector.
struct Rank {
  Rank(const Run& run, int rank);
  void end(const Run& run);

  int number;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUevent begin = nullptr, finish = nullptr;
  CUdeviceptr send = 0, recv = 0;
  float* host = nullptr;
  std::vector<Comm> comms;
};

Rank::Rank(const Run& run, int rank) : number(rank) {
  CHECK(cu().init(0));
  CHECK(cu().primary_ctx_retain(&context, 0));
  CHECK(cu().ctx_set_current(context));
  CHECK(cu().stream_create(&stream, kStreamNonBlocking, 0));
  CHECK(cu().event_create(&begin, kEventDefault));
  CHECK(cu().event_create(&finish, kEventDefault));
  CHECK(cu().mem_alloc(&send, run.most_bytes));
  CHECK(cu().mem_alloc(&recv, run.most_bytes));
  void* memory = nullptr;
  CHECK(cu().host_alloc(&memory, run.most_bytes, kHostAllocPortable));
  host = static_cast<float*>(memory);
}

void Rank::end(const Run& run) {
  meet(run);  // nobody's stream waits any more
  for (const Comm& one : comms) CHECK(ncclCommDestroy(one.comm));
  meet(run);
  CHECK(cu().mem_free(send));
  CHECK(cu().mem_free(recv));
  CHECK(cu().host_free(host));
  CHECK(cu().event_destroy(begin));
  CHECK(cu().event_destroy(finish));
  CHECK(cu().stream_destroy(stream));
}

template <class Work>
float time_of(const Rank& rank, Work work) {
  CHECK(cu().event_record(rank.begin, rank.stream));
  work();
  CHECK(cu().event_record(rank.finish, rank.stream));
  CHECK(cu().event_synchronize(rank.finish));
  float ms = 0;
  CHECK(cu().event_elapsed_time(&ms, rank.begin, rank.finish));
  return ms;
}

float median(std::vector<float> ms) {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

// Sums of these are exact in both types, of which bfloat16 is the first half of the other.
int element(const Run& run, std::size_t i) {
  return static_cast<int>(i % (run.halves ? 13 : 1000));
}

void store(const Run& run, const Rank& rank, std::size_t i, float value) {
  std::byte* const at = reinterpret_cast<std::byte*>(rank.host) + bytes_of(run, i);
  const std::size_t unused = run.halves ? 2 : 0;
  std::memcpy(at, reinterpret_cast<const std::byte*>(&value) + unused, 4 - unused);
}

float load(const Run& run, const Rank& rank, std::size_t i) {
  const std::byte* const at = reinterpret_cast<const std::byte*>(rank.host) + bytes_of(run, i);
  const std::size_t unused = run.halves ? 2 : 0;
  float value = 0;
  std::memcpy(reinterpret_cast<std::byte*>(&value) + unused, at, 4 - unused);
  return value;
}

// About normal, other in each rank and place.
float noise(int rank, std::size_t i) {
  std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + static_cast<unsigned>(rank);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  float sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<float>((x >> (16 * part)) & 0xffff);
  return sum / 65536 - 2;
}

void fill(const Run& run, const Rank& rank, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float plain = static_cast<float>(element(run, i) + rank.number);
    store(run, rank, i, run.compressed ? noise(rank.number, i) : plain);
  }
  CHECK(cu().memcpy_htod_async(rank.send, rank.host, bytes_of(run, count), rank.stream));
  CHECK(cu().stream_synchronize(rank.stream));
}

void verify(const Run& run, const Rank& rank, std::size_t count) {
  if (run.compressed) return;
  CHECK(cu().memcpy_dtoh_async(rank.host, rank.recv, bytes_of(run, count), rank.stream));
  CHECK(cu().stream_synchronize(rank.stream));
  for (std::size_t i = 0; i < count; ++i) {
    const int sum = run.ranks * element(run, i) + run.ranks * (run.ranks - 1) / 2;
    if (load(run, rank, i) != static_cast<float>(sum)) fail("a sum is wrong");
  }
}

void call(const Run& run, const Rank& rank, ncclComm_t comm, std::size_t count) {
  void* send = reinterpret_cast<void*>(static_cast<std::uintptr_t>(rank.send));
  void* recv = reinterpret_cast<void*>(static_cast<std::uintptr_t>(rank.recv));
  auto* stream = reinterpret_cast<cudaStream_t>(rank.stream);
  const ncclDataType_t type = run.halves ? ncclBfloat16 : ncclFloat32;
  CHECK(ncclAllReduce(send, recv, count, type, ncclSum, comm, stream));
}

// Milliseconds of a call by the communicator, which take turns.
std::vector<float> time_calls(const Run& run, const Rank& rank, std::size_t count, int queued,
                              Rounds rounds) {
  std::vector<std::vector<float>> ms(rank.comms.size());
  for (int round = -rounds.warm_ups; round < rounds.timed; ++round) {
    for (std::size_t i = 0; i < rank.comms.size(); ++i) {
      const float whole = time_of(rank, [&] {
        for (int made = 0; made < queued; ++made) call(run, rank, rank.comms[i].comm, count);
      });
      if (round >= 0) ms[i].push_back(whole / static_cast<float>(queued));
    }
  }
  std::vector<float> medians;
  for (const std::vector<float>& one : ms) medians.push_back(median(one));
  return medians;
}

float time_copies(const Rank& rank, std::size_t bytes) {
  std::vector<float> copies;
  for (int round = 0; round < rounds_of(bytes).timed; ++round) {
    copies.push_back(time_of(
        rank, [&] { CHECK(cu().memcpy_dtod_async(rank.recv, rank.send, bytes, rank.stream)); }));
  }
  return median(copies);
}

// Both on the terminal and as a line of JSON.
void write_row(const Run& run, const std::string& blocks, std::size_t bytes, int queued, float ms,
               float copy_ms, std::FILE* out) {
  const double us = 1e3 * static_cast<double>(ms);
  const std::string label = run.label + (blocks.empty() ? "" : ", " + blocks + " blocks");
  std::printf("%-9s %d ranks %10zu B %10.1f us", label.c_str(), run.ranks, bytes, us);
  std::fprintf(out,
               "{\"way\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"type\": \"%s\", \"us\": %.2f",
               label.c_str(), run.ranks, bytes, run.halves ? "bfloat16" : "float32", us);
  if (queued > 1) {
    std::printf(", one of %d queued", queued);
    std::fprintf(out, ", \"queued\": %d", queued);
  } else {
    const double of_copy = 1e3 * run.ranks * static_cast<double>(copy_ms) / us;
    std::printf(" %6.3f of copy", of_copy);
    std::fprintf(out, ", \"of_copy\": %.4f", of_copy);
  }
  std::printf("\n");
  std::fprintf(out, "}\n");
  std::fflush(stdout);
  std::fflush(out);
}

// What is known is written at once: the next may hang.
void measure(const Run& run, const Rank& rank, std::size_t count, std::FILE* out) {
  const std::size_t bytes = bytes_of(run, count);
  const auto write = [&](const std::vector<float>& ms, int queued, float copy_ms) {
    for (std::size_t i = 0; i < ms.size(); ++i) {
      write_row(run, rank.comms[i].blocks, bytes, queued, ms[i], copy_ms, out);
    }
  };
  fill(run, rank, count);
  meet(run);
  const std::vector<float> calls = time_calls(run, rank, count, 1, rounds_of(bytes));
  verify(run, rank, count);
  meet(run);
  // The others go on when rank 0 has measured its copies, alone.
  if (rank.number == 0) write(calls, 1, time_copies(rank, bytes));
  for (const int length : queues) {
    if (bytes > most_queued_bytes) break;
    meet(run);
    const std::vector<float> queued = time_calls(run, rank, count, length, {1, queue_rounds});
    verify(run, rank, count);
    if (rank.number == 0) write(queued, length, 0);
  }
}

// The setting is read as the communicator is made; while it is written nobody else reads any.
void join(const Run& run, Rank& rank) {
  for (std::size_t i = 0; i < run.blocks.size(); ++i) {
    const std::string& blocks = run.blocks[i];
    meet(run);
    if (!blocks.empty() && (rank.number == 0 || run.processes)) {
      setenv("PITH_CUDA_BLOCKS", blocks.c_str(), 1);
    }
    if (rank.number == 0) CHECK(ncclGetUniqueId(&run.shared.id));
    meet(run);
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRank(&comm, run.ranks, run.shared.id, rank.number));
    rank.comms.push_back({blocks, comm});
  }
}

void run_rank(const Run& run, int number) {
  Rank rank(run, number);
  join(run, rank);
  std::FILE* out = number == 0 ? std::fopen(run.file, "a") : nullptr;
  if (number == 0 && !out) fail(run.file);
  for (const std::size_t bytes : sizes) {
    if (bytes <= run.most_bytes) measure(run, rank, bytes / sizeof(float), out);
    meet(run);
  }
  if (out) std::fclose(out);
  rank.end(run);
}

// The words between commas; one that is empty where there are none.
std::vector<std::string> words_of(const char* text) {
  std::vector<std::string> words(1);
  for (; text && *text; ++text) {
    if (*text == ',') {
      words.emplace_back();
    } else {
      words.back() += *text;
    }
  }
  return words;
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
  const bool known = argc >= 4 && argc <= 6;
  const std::string way = known ? argv[1] : "";
  const int ranks = known ? std::atoi(argv[2]) : 0;
  if (ranks < 1 || (way != "threads" && way != "processes" && way != "hosts")) {
    std::fprintf(stderr,
                 "usage: gpu_calls threads|processes|hosts RANKS FILE [MOST_BYTES [LABEL]]\n");
    return 2;
  }
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  const std::size_t most = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : sizes[4];
  const char* const type = std::getenv("GPU_CALLS_TYPE");
  const Run run{*static_cast<Shared*>(memory),
                ranks,
                argc > 5 ? argv[5] : argv[1],
                argv[3],
                std::max(most, sizes[0]),
                way != "threads",
                words_of(std::getenv("GPU_CALLS_BLOCKS")),
                type && std::strcmp(type, "bfloat16") == 0,
                std::getenv("PITH_COMPRESS") != nullptr};
  std::vector<std::thread> all;
  for (int r = 0; r < ranks; ++r) {
    if (way == "threads") {
      all.emplace_back([&run, r] { run_rank(run, r); });
    } else if (fork() == 0) {  // before anybody has used CUDA
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (way == "hosts") setenv("NCCL_HOSTID", ("host" + std::to_string(r)).c_str(), 1);
      run_rank(run, r);
      std::_Exit(0);
    }
  }
  for (std::thread& thread : all) thread.join();
  return way == "threads" ? 0 : wait_for_children(ranks);
}
