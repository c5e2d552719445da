// Calls at the edge of what is allowed: of nothing, of more than a message holds, from threads with
// another floating-point mode, between calls that overtake each other.
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "catch.hpp"
#include "everywhere.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace ranks;

namespace {

// Which no byte of is touched.
class Untouched {
 public:
  explicit Untouched(std::size_t bytes)
      : bytes_(bytes),
        memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    ensure(memory_ != MAP_FAILED, "no address space");
  }
  ~Untouched() { munmap(memory_, bytes_); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;
  void* data() const { return memory_; }

 private:
  std::size_t bytes_;
  void* memory_;
};

// Each rank waits in the other call for its peer, which has made the empty one or will.
void empty_calls_wait_for_nobody(Rank& self) {
  const Comm comm(self.join());
  float value = 1;
  auto empty = [&] {
    ok(pithAllReduce(&value, &value, 0, pithFloat32, pithSum, comm, nullptr));
    ok(pithBcast(&value, 0, pithFloat32, 1 - self.rank, comm, nullptr));
  };
  if (self.rank == 0) empty();
  if (self.rank == 0) ok(pithSend(&value, 1, pithFloat32, 1, comm, nullptr));
  if (self.rank == 1) ok(pithRecv(&value, 1, pithFloat32, 0, comm, nullptr));
  if (self.rank == 1) empty();
  ok(pithBarrier(comm, nullptr));
}

void too_long_for_a_message(Rank& self) {
  const Comm comm(self.join());
  constexpr std::size_t count = (std::size_t{1} << 29) + 1;
  const Untouched send(count * sizeof(float));
  const Untouched recv(count * sizeof(float));
  const pithResult_t result =
      pithAllReduce(send.data(), recv.data(), count, pithFloat32, pithSum, comm, nullptr);
  fails(result, pithInvalidUsage, {"2147483652", "2147483648", "PITH_ALGO"});
}

#if defined(__x86_64__)
void subnormal_sums(Rank& self) {
  const Comm comm(self.join());
  if (self.rank == 0) _mm_setcsr(_mm_getcsr() | 0x8040);  // flushes results and operands to zero
  for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
    const std::vector<float> send(count, 1e-40f);
    std::vector<float> recv(count);
    ok(pithAllReduce(send.data(), recv.data(), count, pithFloat32, pithSum, comm, nullptr));
    std::uint32_t bits = 0;
    std::memcpy(&bits, recv.data(), sizeof bits);
    self.agree(bits);
    ensure(bits != 0, "a subnormal sum was flushed to zero");
  }
}
#endif

// More calls in the background than the recorder keeps, and a blocking one before they have begun.
void overtaken_calls(Rank& self) {
  const Comm comm(self.join());
  constexpr int calls = 100;
  std::vector<float> values(calls, 1.0f);
  pithRequest_t request = nullptr;
  ok(pithGroupStart());
  for (float& value : values) {
    ok(pithAllReduce(&value, &value, 1, pithFloat32, pithSum, comm, nullptr));
  }
  ok(pithGroupEndAsync(&request));
  float last = 1;
  ok(pithAllReduce(&last, &last, 1, pithFloat32, pithSum, comm, nullptr));
  ok(pithWait(request));
  ensure(values[calls - 1] == 2, "a wrong sum");
  pithComm_t child = nullptr;
  ok(pithCommShrink(comm, nullptr, 0, &child, nullptr, 0));
  std::uint64_t completed = 0;
  ok(pithCommGetLastCompleted(child, &completed));
  ok(pithCommDestroy(child));
  ensure(completed == calls + 1, "completed are " + std::to_string(completed));
}

// Blocks of private memory as long as those that one rank copies for all others, and longer ones.
void long_blocks(Rank& self) {
  const Comm comm(self.join());
  const auto ranks = static_cast<std::size_t>(self.size);
  for (const std::size_t count : {65535, 65536, 300'000, 1'048'576, 1'048'577}) {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::int32_t> send(count, 10 * self.rank + round);
      send.back() = self.rank;
      std::vector<std::int32_t> recv(ranks * count);
      ok(pithAllGather(send.data(), recv.data(), count, pithInt32, comm, nullptr));
      for (std::size_t i = 0; i < recv.size(); ++i) {
        const int from = static_cast<int>(i / count);
        ensure(recv[i] == (i % count == count - 1 ? from : 10 * from + round), "a wrong element");
      }
    }
  }
}

}  // namespace

TEST_CASE("long blocks of private memory", "[corners]") {
  for (Setup setup : every_link()) {
    INFO(name_of(setup));
    setup.environment = {{"PITH_ALGO", "allgather:views"}};
    CHECK(run(3, setup, long_blocks) == "");
  }
}

TEST_CASE("calls of nothing wait for nobody", "[corners]") {
  everywhere(2, 2, empty_calls_wait_for_nobody);
}

TEST_CASE("a vector that a forced algorithm cannot send", "[corners]") {
  for (const char* algorithm : {"recursive_doubling", "one_shot"}) {
    Setup setup;
    setup.transport = "tcp";
    setup.environment = {{"PITH_ALGO", std::string("allreduce:") + algorithm}};
    INFO(algorithm);
    CHECK(run(2, setup, too_long_for_a_message) == "");
  }
}

#if defined(__x86_64__)
TEST_CASE("a thread that flushes subnormal numbers", "[corners]") {
  everywhere(2, 2, subnormal_sums);
}
#endif

TEST_CASE("blocking calls that overtake those in the background", "[corners]") {
  everywhere(2, 2, overtaken_calls);
}
