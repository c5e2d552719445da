// Ranks of one host that may not copy from each other's memory, as in some containers: private
// memory then goes through rings, and nobody notices but by the time it takes.
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "catch.hpp"
#include "deny_copies.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr int not_possible = 77;
constexpr std::size_t count = (std::size_t{1} << 20) / sizeof(std::int32_t);

void lose_copies() {
  if (!deny_copies()) _exit(not_possible);
  char from = 1;
  char to = 0;
  const iovec here{&to, 1};
  const iovec there{&from, 1};
  ensure(process_vm_readv(getpid(), &here, 1, &there, 1, 0) < 0 && errno == EPERM, "can copy");
}

std::int32_t value(int rank, std::size_t i, int turn) {
  return static_cast<std::int32_t>(i % 1009) * (rank + 1) + turn;
}

void reduces(Rank& self, int first_denied) {
  if (self.rank >= first_denied) lose_copies();
  const Comm comm(self.join());
  const Buffer send(count * sizeof(std::int32_t), false);
  const Buffer recv(send.size(), false);
  for (int turn = 0; turn < 3; ++turn) {
    for (std::size_t i = 0; i < count; ++i) {
      send.as<std::int32_t>()[i] = value(self.rank, i, turn);
    }
    ok(pithAllReduce(send.data(), recv.data(), count, pithInt32, pithSum, comm, nullptr));
    for (std::size_t i = 0; i < count; ++i) {
      std::int32_t sum = 0;
      for (int rank = 0; rank < self.size; ++rank) sum += value(rank, i, turn);
      ensure(recv.as<std::int32_t>()[i] == sum, "wrong at " + std::to_string(i));
    }
  }
}

}  // namespace

TEST_CASE("a sum of private memory where copies between processes are refused", "[denied]") {
  Setup setup;
  setup.transport = "shm";
  for (const int size : {2, 3}) {
    for (const int first_denied : {0, 1}) {
      INFO(size << " ranks, from rank " << first_denied << " on");
      const std::string outcome =
          run(size, setup, [&](Rank& self) { reduces(self, first_denied); });
      if (outcome.find("exit status 77") != std::string::npos) {
        WARN("skipped: this system allows no seccomp filter");
        return;
      }
      CHECK(outcome == "");
    }
  }
}
