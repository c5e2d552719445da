// What Pith needs besides the caller's buffers, whatever was called: at most 8 MiB a rank and
// communicator over memory and TCP is the aim, and over UCX what that needs itself comes on top.
// The limits here leave room for what neighbours on the machine change. Counted as memory of the
// process that is neither code nor file, pages of several processes divided among them; hence the
// mean over the ranks is what counts.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "ranks.hpp"
#include "tests/sanitized.hpp"

using namespace ranks;

namespace {

constexpr std::int64_t mib = 1 << 20;
std::int64_t most_bytes(const std::string& where) {
  if (where.starts_with("tcp")) return 10 * mib;
  return where.starts_with("ucx") ? 18 * mib : 12 * mib;
}

constexpr std::size_t call_bytes = std::size_t{64} << 20;

std::int64_t resident_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::int64_t kib = 0;
  for (std::string line; std::getline(rollup, line);) {
    if (!line.starts_with("Pss_Anon:") && !line.starts_with("Pss_Shmem:")) continue;
    std::int64_t value = 0;
    std::istringstream(line.substr(line.find(':') + 1)) >> value;
    kib += value;
  }
  return kib * 1024;
}

// The buffers of one rank, 64 MiB each, their pages present.
struct Buffers {
  explicit Buffers(bool registered) : send(call_bytes, registered), recv(call_bytes, registered) {
    std::fill_n(send.data(), call_bytes, char{1});
    std::fill_n(recv.data(), call_bytes, char{0});
  }
  Buffer send;
  Buffer recv;
};

using Call = pithResult_t (*)(pithComm_t comm, int rank, int size, const Buffers& on);

// 64 MiB on one side at least.
const std::pair<const char*, Call> calls[] = {
    {"allreduce",
     [](pithComm_t comm, int, int, const Buffers& on) {
       return pithAllReduce(on.send.data(), on.recv.data(), call_bytes / 4, pithFloat32, pithSum,
                            comm, nullptr);
     }},
    {"reduce",
     [](pithComm_t comm, int, int, const Buffers& on) {
       return pithReduce(on.send.data(), on.recv.data(), call_bytes / 4, pithFloat32, pithSum, 0,
                         comm, nullptr);
     }},
    {"broadcast",
     [](pithComm_t comm, int, int, const Buffers& on) {
       return pithBroadcast(on.send.data(), on.recv.data(), call_bytes / 4, pithFloat32, 0, comm,
                            nullptr);
     }},
    {"allgather",
     [](pithComm_t comm, int, int size, const Buffers& on) {
       return pithAllGather(on.send.data(), on.recv.data(),
                            call_bytes / 4 / static_cast<std::size_t>(size), pithFloat32, comm,
                            nullptr);
     }},
    {"reducescatter",
     [](pithComm_t comm, int, int size, const Buffers& on) {
       return pithReduceScatter(on.send.data(), on.recv.data(),
                                call_bytes / 4 / static_cast<std::size_t>(size), pithFloat32,
                                pithSum, comm, nullptr);
     }},
    {"alltoall",
     [](pithComm_t comm, int, int size, const Buffers& on) {
       return pithAlltoAll(on.send.data(), on.recv.data(),
                           call_bytes / 4 / static_cast<std::size_t>(size), pithFloat32, comm,
                           nullptr);
     }},
    {"gather",
     [](pithComm_t comm, int, int size, const Buffers& on) {
       return pithGather(on.send.data(), on.recv.data(),
                         call_bytes / 4 / static_cast<std::size_t>(size), pithFloat32, 0, comm,
                         nullptr);
     }},
    {"scatter",
     [](pithComm_t comm, int, int size, const Buffers& on) {
       return pithScatter(on.send.data(), on.recv.data(),
                          call_bytes / 4 / static_cast<std::size_t>(size), pithFloat32, 0, comm,
                          nullptr);
     }},
    {"send and recv",
     [](pithComm_t comm, int rank, int size, const Buffers& on) {
       pithResult_t result = pithGroupStart();
       if (result == pithSuccess) {
         result = pithSend(on.send.data(), call_bytes / 4, pithFloat32, (rank + 1) % size, comm,
                           nullptr);
       }
       if (result == pithSuccess) {
         result = pithRecv(on.recv.data(), call_bytes / 4, pithFloat32, (rank + size - 1) % size,
                           comm, nullptr);
       }
       return result == pithSuccess ? pithGroupEnd() : result;
     }},
    {"barrier",
     [](pithComm_t comm, int, int, const Buffers&) { return pithBarrier(comm, nullptr); }},
};

// The mean over all ranks of what each has taken since `before`.
std::int64_t mean_taken(Rank& self, std::int64_t before) {
  self.meet();
  self.slot(self.rank) = static_cast<std::uint64_t>(resident_bytes() - before);
  self.meet();
  std::int64_t sum = 0;
  for (int rank = 0; rank < self.size; ++rank) {
    sum += static_cast<std::int64_t>(self.slot(rank).load());
  }
  return sum / self.size;
}

void check(const std::string& where, const char* name, std::int64_t taken) {
  const double in_mib = static_cast<double>(taken) / double(mib);
  ensure(taken <= most_bytes(where), where + ": " + std::to_string(in_mib) + " MiB after " + name);
}

void count_between_processes(Rank& self, bool registered, const std::string& where) {
  const Buffers buffers(registered);
  self.meet();
  const std::int64_t before = resident_bytes();
  const Comm comm(self.join());
  std::int64_t taken = 0;
  for (const auto& [name, call] : calls) {
    ok(call(comm, self.rank, self.size, buffers));
    taken = mean_taken(self, before);
    check(where, name, taken);
  }
  if (self.rank == 0) {
    std::printf("%s: %.2f MiB a rank\n", where.c_str(), static_cast<double>(taken) / double(mib));
  }
}

void count_between_threads(bool registered) {
  constexpr int size = 3;
  std::vector<std::unique_ptr<Buffers>> buffers;
  buffers.reserve(size);
  for (int rank = 0; rank < size; ++rank) buffers.push_back(std::make_unique<Buffers>(registered));
  const std::int64_t before = resident_bytes();
  pithComm_t comms[size];
  ok(pithCommInitAll(comms, size, nullptr));
  for (const auto& [name, call] : calls) {
    pithResult_t results[size];
    std::vector<std::thread> threads;
    threads.reserve(size);
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank, call = call] {
        results[rank] = call(comms[rank], rank, size, *buffers[static_cast<std::size_t>(rank)]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const pithResult_t result : results) ok(result);
    check("threads", name, (resident_bytes() - before) / size);
  }
  std::printf("threads: %.2f MiB a rank\n",
              static_cast<double>(resident_bytes() - before) / size / double(mib));
  for (pithComm_t comm : comms) ok(pithCommDestroy(comm));
}

// Rank 0 receives from the others by turns, one message at a time, while each sends all it has. The
// most that rank 0 takes on the way.
struct Flood {
  std::size_t bytes;
  int messages;
  bool in_group = false;  // at the senders
  bool barrier = false;   // in their group as well, and before rank 0 receives
};

void send_flood(Rank& self, pithComm_t comm, const Flood& flood) {
  const std::vector<char> data(flood.bytes, static_cast<char>(self.rank));
  if (flood.in_group) ok(pithGroupStart());
  for (int k = 0; k < flood.messages; ++k) {
    ok(pithSend(data.data(), data.size(), pithInt8, 0, comm, nullptr));
  }
  if (flood.barrier) ok(pithBarrier(comm, nullptr));
  if (flood.in_group) ok(pithGroupEnd());
}

std::int64_t receive_flood(Rank& self, pithComm_t comm, const Flood& flood, std::int64_t before) {
  std::vector<char> data(flood.bytes, char{-1});
  before += static_cast<std::int64_t>(data.size());
  if (flood.barrier) ok(pithBarrier(comm, nullptr));
  std::int64_t most = resident_bytes() - before;
  for (int k = 0; k < flood.messages; ++k) {
    for (int from = 1; from < self.size; ++from) {
      ok(pithRecv(data.data(), data.size(), pithInt8, from, comm, nullptr));
      ensure(data.empty() || (data.front() == from && data.back() == from), "a wrong byte");
    }
    if (k % 16 == 0) most = std::max(most, resident_bytes() - before);
  }
  return most;
}

void count_flood(Rank& self, const Flood& flood, const std::string& where) {
  const Comm comm(self.join());
  // Rank 0 is late, and so is the last rank: what the first one sends comes ahead of it.
  self.meet();
  const std::int64_t before = resident_bytes();
  self.meet();
  if (self.rank != 0) {
    if (self.rank == self.size - 1) sleep_s(0.2);
    send_flood(self, comm, flood);
  } else {
    const std::int64_t taken = receive_flood(self, comm, flood, before);
    std::printf("%s: %.2f MiB\n", where.c_str(), static_cast<double>(taken) / double(mib));
    ensure(taken <= 8 * mib, where + ": " + std::to_string(taken) + " bytes");
  }
  ok(pithBarrier(comm, nullptr));
}

}  // namespace

TEST_CASE("what comes before its receive is called stays within limits", "[scratch][messages]") {
  constexpr std::size_t mebibyte = mib;
  int which = 0;
  for (const Flood& flood :
       {Flood{mebibyte, 200}, Flood{4096, 20'000}, Flood{0, 100'000}, Flood{mebibyte, 200, true},
        Flood{4096, 5'000, true, true}, Flood{1, 100'000, true}}) {
    ++which;
    int number = 0;
    for (const Setup& link : between_processes()) {
      if (!pith::test::is_due({which, number++})) continue;
      Setup setup = link;
      setup.limit_s = 120;
      const std::string where = name_of(setup) + ", " + std::to_string(flood.messages) +
                                " messages of " + std::to_string(flood.bytes) + " bytes" +
                                (flood.in_group ? " in a group" : "") +
                                (flood.barrier ? " with a barrier" : "");
      INFO(where);
      CHECK(run(3, setup, [&](Rank& self) { count_flood(self, flood, where); }) == "");
    }
  }
}

TEST_CASE("scratch of one communicator stays within limits", "[scratch]") {
  for (const bool registered : {false, true}) {
    for (const Setup& link : every_link()) {
      if (link.way != Way::processes) continue;
      Setup setup = link;
      setup.limit_s = 120;
      const std::string where =
          name_of(setup) + (registered ? ", registered memory" : ", private memory");
      INFO(where);
      CHECK(run(3, setup, [&](Rank& self) { count_between_processes(self, registered, where); }) ==
            "");
    }
    Setup alone;
    alone.way = Way::alone;
    alone.limit_s = 120;
    CHECK(run(1, alone, [&](Rank&) { count_between_threads(registered); }) == "");
  }
}
