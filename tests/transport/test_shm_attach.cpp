// Strangers at the socket by which ranks of one host attach.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "catch.hpp"
#include "transport/shm_attach.hpp"
#include "transport/two_ranks.hpp"

namespace {

using namespace pith_test;
using pith::Descriptor;
using pith::ShmMeeting;

constexpr std::uint64_t second_ns = 1000000000;

// Without room for more than so many descriptors beyond those that are open.
class Limit {
 public:
  explicit Limit(rlim_t room) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(STDERR_FILENO);
    close(next);
    const rlimit tight = {static_cast<rlim_t>(next) + room, before_.rlim_max};
    must(setrlimit(RLIMIT_NOFILE, &tight) == 0, "no limit");
  }
  ~Limit() { setrlimit(RLIMIT_NOFILE, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  rlimit before_{};
};

std::vector<Descriptor> call_silently(const std::string& name, int count) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  std::vector<Descriptor> calls;
  for (int i = 0; i < count; ++i) {
    calls.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    must(connect(calls.back().get(), reinterpret_cast<const sockaddr*>(&address), length) == 0,
         "a stranger cannot call");
  }
  return calls;
}

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Meets the other of two ranks; those that were found.
int meet(ShmMeeting& meeting, const std::vector<std::string>& names, std::uint64_t patience_ns) {
  const Descriptor segment(memfd_create("pith-test", MFD_CLOEXEC));
  const Descriptor doorbell(eventfd(0, EFD_CLOEXEC));
  const int mine[3] = {segment.get(), doorbell.get(), -1};
  int found = 0;
  const pith::Error error = meeting.meet(names, tiny_shape(), mine, 0, monotonic_ns() + patience_ns,
                                         [&found](const ShmMeeting::Met&) { ++found; });
  must(!error, error.message());
  return found;
}

// Rank 1 brings so many strangers to rank 0, which has room for so many descriptors.
void attend(int rank, const Names& names, int strangers, rlim_t room) {
  ShmMeeting meeting(rank, 2, pith::Secret{});
  const auto mine = meeting.listen(nullptr);
  must(static_cast<bool>(mine), mine.error().message());
  std::vector<std::string> all(2);
  all[static_cast<std::size_t>(1 - rank)] = names.swap(rank, *mine);
  if (rank == 1) {
    const std::vector<Descriptor> crowd = call_silently(all[0], strangers);
    names.swap(rank, "called");
    must(meet(meeting, all, 20 * second_ns) == 1, "not attached");
    return;
  }
  names.swap(rank, "heard");
  const Limit limit(room);
  const double before = cpu_seconds();
  must(meet(meeting, all, 20 * second_ns) == 1, "the peer was not attached");
  must(cpu_seconds() - before < 2, "spun");
}

}  // namespace

TEST_CASE("shm: silent strangers, more than are let in at once") {
  CHECK(run_forked([](int rank, const Names& names) { attend(rank, names, 600, 500); }) == "");
}

TEST_CASE("shm: silent strangers that take all descriptors") {
  CHECK(run_forked([](int rank, const Names& names) { attend(rank, names, 100, 60); }) == "");
}
