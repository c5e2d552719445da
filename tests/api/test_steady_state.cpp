// In steady state a call allocates nothing.
#include <sched.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include "catch.hpp"
#include "comm/refilled.hpp"
#include "everywhere.hpp"

using namespace ranks;

namespace {

// Counts while a rank's window is open: on its own thread, and where a process is a rank, on the
// others, the progress and the control thread.
bool ranks_are_processes = true;
thread_local bool window = false;
std::atomic<bool> window_of_process{false};
std::atomic<int> allocations{0};
std::atomic<int> on_other_threads{0};

void open_window(bool open) {
  window = open;
  window_of_process.store(open && ranks_are_processes, std::memory_order_relaxed);
}

void* count(void* memory) {
  if (window) {
    allocations.fetch_add(1, std::memory_order_relaxed);
  } else if (window_of_process.load(std::memory_order_relaxed)) {
    on_other_threads.fetch_add(1, std::memory_order_relaxed);
  }
  return memory;
}

void* checked(void* memory) {
  if (!memory) throw std::bad_alloc();
  return count(memory);
}

}  // namespace

// The C functions as the library's own objects call them; ld --wrap prescribes the names.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" {
void* __real_malloc(std::size_t size);
void* __real_calloc(std::size_t items, std::size_t size);
void* __real_realloc(void* old, std::size_t size);
void* __wrap_malloc(std::size_t size) { return count(__real_malloc(size)); }
void* __wrap_calloc(std::size_t items, std::size_t size) {
  return count(__real_calloc(items, size));
}
void* __wrap_realloc(void* old, std::size_t size) { return count(__real_realloc(old, size)); }
}
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

void* operator new(std::size_t size) { return checked(__real_malloc(size)); }
void* operator new[](std::size_t size) { return checked(__real_malloc(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return checked(std::aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

constexpr std::array<std::size_t, 3> sizes = {8, 64 << 10, 1 << 20};

void reduce(pithComm_t comm, const Buffer& send, const Buffer& recv, std::size_t bytes, int calls) {
  for (int i = 0; i < calls; ++i) {
    ok(pithAllReduce(send.data(), recv.data(), bytes / 4, pithFloat32, pithSum, comm, nullptr));
  }
}

// Everything else that a rank may call again and again; blocks of the same bytes in all.
void move(pithComm_t comm, int rank, int size, const Buffer& send, const Buffer& recv,
          std::size_t bytes, int calls) {
  const std::size_t count = bytes / 4 / static_cast<std::size_t>(size);
  std::array<std::size_t, 8> equal{};  // by rank
  equal.fill(count);
  std::array<std::size_t, 8> sizes_of = equal;
  sizes_of[0] = count / 2;
  for (int i = 0; i < calls; ++i) {
    const int root = i % size;
    ok(pithReduce(send.data(), recv.data(), count, pithFloat32, pithSum, root, comm, nullptr));
    ok(pithReduceScatter(send.data(), recv.data(), count, pithFloat32, pithSum, comm, nullptr));
    ok(pithAlltoAll(send.data(), recv.data(), count, pithFloat32, comm, nullptr));
    ok(pithGather(send.data(), recv.data(), count, pithFloat32, root, comm, nullptr));
    ok(pithScatter(send.data(), recv.data(), count, pithFloat32, root, comm, nullptr));
    ok(pithBroadcast(send.data(), recv.data(), bytes / 4, pithFloat32, root, comm, nullptr));
    ok(pithAllGather(send.data(), recv.data(), count, pithFloat32, comm, nullptr));
    ok(pithAllGatherV(send.data(), recv.data(), sizes_of.data(), nullptr, pithFloat32, comm,
                      nullptr));
    ok(pithReduceScatterV(send.data(), recv.data(), sizes_of.data(), pithFloat32, pithSum, comm,
                          nullptr));
    ok(pithAlltoAllV(send.data(), equal.data(), nullptr, recv.data(), equal.data(), nullptr,
                     pithFloat32, comm, nullptr));
    ok(pithScan(send.data(), recv.data(), count, pithFloat32, pithSum, comm, nullptr));
    ok(pithExScan(send.data(), recv.data(), count, pithFloat32, pithSum, comm, nullptr));
    ok(pithBarrier(comm, nullptr));
    if (rank > 1) continue;
    if (rank == 0) ok(pithSend(send.data(), count, pithFloat32, 1, comm, nullptr));
    ok(pithRecv(recv.data(), count, pithFloat32, 1 - rank, comm, nullptr));
    if (rank == 1) ok(pithSend(send.data(), count, pithFloat32, 0, comm, nullptr));
  }
}

int calls_of(std::size_t bytes) { return bytes > (64 << 10) ? 200 : 1000; }

std::uint64_t total(Rank& self, int which) {
  std::uint64_t sum = 0;
  for (int rank = 0; rank < self.size; ++rank) sum += self.slot(rank, which);
  return sum;
}

struct Demand {
  int windows = 2;
  bool other_threads = true;
};

// How far peers run ahead is a matter of timing, so the pools reach their largest size some time,
// and from then on nothing may be allocated: in so many windows, one after the other. The control
// thread allocates when it looks around, several times a second; so what other threads allocate
// must be less, in some window, than if every rank did it once a turn.
template <class Call>
void find_quiet_window(Rank& self, const std::string& what, int warm, int counted, Call call,
                       Demand demand = {}) {
  constexpr int most_windows = 16;
  int quiet = 0;
  bool others_quiet = !demand.other_threads;
  for (int i = 0; i < most_windows; ++i) {
    call(warm);
    self.meet();
    allocations = on_other_threads = 0;
    self.meet();
    open_window(true);
    call(counted);
    open_window(false);
    self.slot(self.rank, 0) = static_cast<std::uint64_t>(allocations);
    self.slot(self.rank, 1) = static_cast<std::uint64_t>(on_other_threads);
    self.meet();
    const std::uint64_t own = total(self, 0);
    const std::uint64_t others = total(self, 1);
    self.meet();
    quiet = own == 0 ? quiet + 1 : 0;
    others_quiet |=
        others < static_cast<std::uint64_t>(counted) * static_cast<std::uint64_t>(self.size);
    if (quiet >= demand.windows && others_quiet) return;
    ensure(i + 1 < most_windows, std::to_string(own) + " allocations, and " +
                                     std::to_string(others) +
                                     " on other threads, in steady state with " + what);
  }
}

void reduces(Rank& self, bool registered) {
  const Comm comm(self.join());
  for (const std::size_t bytes : sizes) {
    const Buffer send(bytes, registered);
    const Buffer recv(bytes, registered);
    const auto call = [&](int calls) { reduce(comm, send, recv, bytes, calls); };
    find_quiet_window(self, std::to_string(bytes) + " bytes", 200, calls_of(bytes) / 2, call);
  }
}

void moves(Rank& self, bool registered) {
  const Comm comm(self.join());
  for (const std::size_t bytes : sizes) {
    const Buffer send(bytes, registered);
    const Buffer recv(bytes, registered);
    const auto call = [&](int calls) {
      move(comm, self.rank, self.size, send, recv, bytes, calls);
    };
    find_quiet_window(self, std::to_string(bytes) + " bytes", 20, calls_of(bytes) / 20, call);
  }
}

// The body in ranks of its own. The first calls by a rival allocate what its later ones use, so
// none is tried.
void runs(int size, Setup setup, const Body& body) {
  setup.environment.emplace_back("PITH_LEARN", "0");
  INFO(name_of(setup) << ", " << size << " ranks");
  ranks_are_processes = setup.way == Way::processes;
  CHECK(run(size, setup, body) == "");
}

// Two tensors in one call, of which the larger one goes in several parcels.
void compresses_without_allocating(Rank& self, const char* spec) {
  const Comm comm(self.join());
  constexpr std::array<std::size_t, 2> counts = {300000, 500};
  std::vector<std::vector<float>> send;
  std::vector<std::vector<float>> recv;
  std::array<pithCompressor_t, 2> compressors{};
  for (std::size_t t = 0; t < counts.size(); ++t) {
    ok(pithCompressorCreate(&compressors[t], spec));
    recv.emplace_back(counts[t]);
    for (std::size_t i = 0; i < counts[t]; ++i) {
      if (i == 0) send.emplace_back(counts[t]);
      const std::uint64_t bits =
          (i + 1) * (static_cast<std::uint64_t>(self.rank) + 3) * 0x9E3779B97F4A7C15u;
      const float u = static_cast<float>(bits >> 40) / float(1 << 24) - 0.5f;
      send[t][i] = u * u * u;
    }
  }
  const auto call = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      for (std::size_t t = 0; t < counts.size(); ++t) {
        ok(pithAllReduceCompressed(send[t].data(), recv[t].data(), counts[t], pithFloat32, pithSum,
                                   compressors[t], comm, nullptr));
      }
    }
  };
  // How many elements pass a threshold goes up and down, so that lists still grow now and then. A
  // turn takes long: the control thread looks around several times in a window.
  const Demand demand{.windows = 1, .other_threads = false};
  find_quiet_window(self, spec, 30, 20, call, demand);
  for (const pithCompressor_t compressor : compressors) ok(pithCompressorDestroy(compressor));
}

// What one rank gives and gets in a group of several calls.
struct GroupBuffers {
  static constexpr std::size_t calls = 4;
  static constexpr std::size_t count = 5000;
  std::array<std::vector<float>, calls> send;
  std::array<std::vector<float>, calls> recv;

  explicit GroupBuffers(int size) {
    for (auto& one : send) one.assign(count, 1);
    for (auto& one : recv) one.resize(count * static_cast<std::size_t>(size));
  }
};

void sums(pithComm_t comm, GroupBuffers& buffers) {
  for (std::size_t i = 0; i < GroupBuffers::calls; ++i) {
    // Of several lengths, so that they end in another order than they begin.
    ok(pithAllReduce(buffers.send[i].data(), buffers.recv[i].data(), GroupBuffers::count >> (3 * i),
                     pithFloat32, pithSum, comm, nullptr));
  }
}

// One call of each kind, and a message between two ranks.
void mixed(pithComm_t comm, int rank, GroupBuffers& buffers) {
  constexpr std::size_t count = GroupBuffers::count;
  ok(pithBroadcast(buffers.send[0].data(), buffers.recv[0].data(), count, pithFloat32, 0, comm,
                   nullptr));
  if (rank == 0) ok(pithSend(buffers.send[1].data(), count, pithFloat32, 1, comm, nullptr));
  if (rank == 1) ok(pithRecv(buffers.recv[1].data(), count, pithFloat32, 0, comm, nullptr));
  ok(pithAllGather(buffers.send[2].data(), buffers.recv[2].data(), count, pithFloat32, comm,
                   nullptr));
  ok(pithBarrier(comm, nullptr));
}

void end_in_background(pithRequest_t& request, bool tests) {
  int done = 0;
  while (tests && done == 0) {
    ok(pithTest(request, &done));
    if (done == 0) sched_yield();
  }
  if (!tests) ok(pithWait(request));
}

// Blocking groups, groups in the background, and two of these at once.
void groups_without_allocating(Rank& self) {
  const Comm comm(self.join());
  std::array<GroupBuffers, 3> buffers{GroupBuffers(self.size), GroupBuffers(self.size),
                                      GroupBuffers(self.size)};
  const auto call = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      std::array<pithRequest_t, 2> requests{};
      for (std::size_t k = 0; k < requests.size(); ++k) {
        ok(pithGroupStart());
        sums(comm, buffers[k]);
        ok(pithGroupEndAsync(&requests[k]));
      }
      ok(pithGroupStart());
      i % 2 == 0 ? sums(comm, buffers[2]) : mixed(comm, self.rank, buffers[2]);
      ok(pithGroupEnd());
      end_in_background(requests[1], i % 3 == 0);
      end_in_background(requests[0], i % 3 == 1);
    }
  };
  find_quiet_window(self, "groups", 100, 100, call);
}

// blocking = 0. pithInProgress is no failure.
void background_without_allocating(Rank& self) {
  const Comm parent(self.join());
  pithConfig_t config = PITH_CONFIG_INITIALIZER;
  config.blocking = 0;
  pithComm_t made = nullptr;
  ok(pithCommSplit(parent, 0, self.rank, &made, &config));
  const Comm comm(made);
  GroupBuffers buffers(self.size);
  const auto ends = [&](pithResult_t result) {
    ensure(result == pithInProgress, "the call has not begun");
    while (result == pithInProgress) {
      ok(pithCommGetAsyncError(comm, &result));
      if (result == pithInProgress) sched_yield();
    }
    ok(result);
  };
  const auto call = [&](int calls) {
    constexpr std::size_t count = GroupBuffers::count;
    for (int i = 0; i < calls; ++i) {
      ends(pithAllReduce(buffers.send[0].data(), buffers.recv[0].data(), count, pithFloat32,
                         pithSum, comm, nullptr));
      ends(pithBarrier(comm, nullptr));
      if (self.rank == 0) {
        ends(pithSend(buffers.send[1].data(), count, pithFloat32, 1, comm, nullptr));
      }
      if (self.rank == 1) {
        ends(pithRecv(buffers.recv[1].data(), count, pithFloat32, 0, comm, nullptr));
      }
    }
  };
  find_quiet_window(self, "calls with blocking = 0", 100, 100, call);
}

}  // namespace

TEST_CASE("no allocation in steady state", "[steady]") {
  on_links(2, 3, [](const Setup& setup, int size) {
    if (setup.transport != "tcp") runs(size, setup, [](Rank& self) { reduces(self, true); });
    runs(size, setup, [](Rank& self) { reduces(self, false); });
  });
}

TEST_CASE("no allocation of algorithms that are not the rule's choice", "[steady]") {
  for (const char* algorithm : {"ring", "recursive_doubling"}) {
    on_links(3, 4, [&](Setup setup, int size) {
      if (setup.transport == "tcp") return;  // as below
      setup.environment.emplace_back("PITH_ALGO", std::string("allreduce:") + algorithm);
      INFO(algorithm);
      const bool registered = size == 4;
      runs(3, setup, [registered](Rank& self) { reduces(self, registered); });
    });
  }
}

TEST_CASE("no allocation of the other collectives and messages", "[steady]") {
  on_links(2, 3, [](const Setup& setup, int size) {
    if (setup.transport != "tcp") runs(size, setup, [](Rank& self) { moves(self, true); });
    runs(size, setup, [](Rank& self) { moves(self, false); });
  });
}

TEST_CASE("no allocation of compressed calls", "[steady]") {
  for (const char* spec : {"topk:bypass=never",
                           "topk:bypass=never,exchange=ring",
                           "topk:bypass=never,exchange=split",
                           "topk:bypass=never,exchange=recursive-doubling",
                           "topk:bypass=never,values=bf16",
                           "ar-topk:bypass=never",
                           "ar-topk:bypass=never,election=variance,values=f16",
                           "ar-topk:bypass=never,election=variance,score=raw",
                           "ar-topk:bypass=never,election=variance-lagged,reduction=ring",
                           "ar-topk:bypass=never,reduction=tree",
                           "exdyna:bypass=never,density=0.01",
                           "exdyna:bypass=never,density=0.01,values=bf16",
                           "exdyna:bypass=never,density=0.01,rule=intended,reduction=tree",
                           "micro:bypass=never,density=0.01,reduction=ring",
                           "bf16",
                           "int8",
                           "efsign",
                           "signum",
                           "bounded:feedback=1",
                           "ok-topk:bypass=never,density=0.01",
                           "gtopk:bypass=never,values=bf16",
                           "powersgd",
                           "arc-topk:bypass=never",
                           "arc-topk:bypass=never,values=bf16",
                           "none",
                           "topk"}) {
    for (const Setup& setup : every_link()) {
      // How many messages wait at once has no bound on a socket that a warm-up surely meets.
      if (setup.transport == "tcp") continue;
      INFO(spec);
      runs(3, setup, [&](Rank& self) { compresses_without_allocating(self, spec); });
    }
  }
}

TEST_CASE("a list that is filled again keeps what it has", "[steady]") {
  pith::Refilled<std::vector<int>> list;
  pith::Refilled<std::vector<int>> other;
  for (int turn = 0; turn < 3; ++turn) {
    allocations = 0;
    window = turn > 0;
    for (int i = 0; i < 100; ++i) {
      std::vector<int>& element = list.add();
      const bool fresh = element.empty();
      for (int k = 0; fresh && k < 10; ++k) element.push_back(i + k);
    }
    list.swap(other);
    window = false;
    int i = 0;
    for (const std::vector<int>& element : other) i += element.size() == 10 && element[0] == i;
    CHECK(i == 100);
    CHECK(list.empty());
    CHECK(allocations == 0);
    other.clear();
    CHECK(other.empty());
    list.swap(other);
  }
}

TEST_CASE("no allocation of groups", "[steady]") {
  on_links(2, 3, [](const Setup& setup, int size) {
    if (setup.transport == "tcp") return;  // as above
    runs(size, setup, groups_without_allocating);
    runs(size, setup, background_without_allocating);
  });
}
