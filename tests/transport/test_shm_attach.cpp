// UnauthenticatedClients at the socket by which ranks of one host attach.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "catch.hpp"
#include "transport/shm/shm_attach.hpp"
#include "transport/two_ranks.hpp"

namespace {

using namespace pith_test;
using pith::Descriptor;
using pith::ShmGreeting;
using pith::ShmRendezvous;

// From now on without room for more than so many descriptors beyond those that are open. Hard, or
// it would be raised: in a process of its own.
void limit_descriptors(rlim_t room) {
  const int next = dup(STDERR_FILENO);
  close(next);
  const rlim_t all = static_cast<rlim_t>(next) + room;
  const rlimit tight = {all, all};
  must(setrlimit(RLIMIT_NOFILE, &tight) == 0, "no limit");
}

Descriptor call(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int status = connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length);
  return status == 0 ? std::move(socket) : Descriptor();
}

std::vector<Descriptor> call_silently(const std::string& name, int count) {
  std::vector<Descriptor> calls;
  for (int i = 0; i < count; ++i) {
    calls.push_back(call(name));
    must(static_cast<bool>(calls.back()), "a stranger cannot call");
  }
  return calls;
}

// A packet with so many descriptors in it.
void say(const Descriptor& socket, std::span<const std::byte> bytes, std::size_t descriptors) {
  constexpr std::size_t most = 253;  // the kernel's limit
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(most * sizeof(int))> control{};
  iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptors > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    const std::vector<int> all(descriptors, STDERR_FILENO);
    std::memcpy(CMSG_DATA(header), all.data(), descriptors * sizeof(int));
  }
  static_cast<void>(sendmsg(socket.get(), &message, MSG_NOSIGNAL));
}

// As rank 1 of 2 begins, and with a proof that is none.
ShmGreeting plausible() {
  ShmGreeting greeting;
  greeting.rank = 1;
  greeting.ranks = 2;
  greeting.shape = tiny_shape();
  greeting.proof.fill(std::byte{7});
  return greeting;
}

// All sorts of packets that are no greetings, torn ones, and greetings without the secret.
std::vector<Descriptor> call_noisily(const std::string& name, std::mt19937& random) {
  std::vector<Descriptor> calls;
  const auto speak = [&](std::span<const std::byte> bytes, std::size_t descriptors) {
    calls.push_back(call(name));
    if (calls.back()) say(calls.back(), bytes, descriptors);
  };
  std::vector<std::byte> noise(4096);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  const ShmGreeting right = plausible();
  const auto greeting = std::as_bytes(std::span(&right, 1));
  constexpr std::size_t whole = sizeof(ShmGreeting);
  for (const std::size_t descriptors : {0u, 1u, 2u, 3u, 4u, 5u, 253u}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{3}, whole, noise.size()}) {
      speak(std::span(noise).first(bytes), descriptors);
    }
    for (const std::size_t bytes : {std::size_t{8}, whole / 2, whole - 1}) {
      speak(greeting.first(bytes), descriptors);
    }
    // Twice, as a rank would; the second time with what passes for its memory.
    speak(greeting, descriptors);
    if (calls.back()) say(calls.back(), greeting, descriptors);
    speak(greeting, descriptors);
    if (calls.back()) shutdown(calls.back().get(), SHUT_WR);
  }
  return calls;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
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
int meet(ShmRendezvous& meeting, const std::vector<std::string>& names, std::uint64_t patience_ns) {
  const Descriptor segment(memfd_create("pith-test", MFD_CLOEXEC));
  const Descriptor doorbell(eventfd(0, EFD_CLOEXEC));
  const int mine[3] = {segment.get(), doorbell.get(), -1};
  int found = 0;
  const pith::Error error = meeting.meet(names, tiny_shape(), mine, 0, monotonic_ns() + patience_ns,
                                         [&found](const ShmRendezvous::Met&) { ++found; });
  must(!error, error.message());
  return found;
}

// Rank 1 brings so many strangers to rank 0, which has room for so many descriptors.
void attend(int rank, const Names& names, int strangers, rlim_t room) {
  ShmRendezvous meeting(rank, 2, pith::Secret{});
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
  limit_descriptors(room);
  const double before = cpu_seconds();
  must(meet(meeting, all, 20 * second_ns) == 1, "the peer was not attached");
  must(cpu_seconds() - before < 2, "spun");
}

std::string attended(int strangers, rlim_t room) {
  const auto body = [=](int rank, const Names& names) { attend(rank, names, strangers, room); };
  return told_by_child([&] { return run_forked(body); });
}

// Calls with noise for as long as it lives.
class Flood {
 public:
  explicit Flood(const std::string& name)
      : thread_([this, name] {
          std::mt19937 random(2);
          while (!stop_) calls_ += call_noisily(name, random).size();
        }) {}
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;
  std::size_t calls() const { return calls_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> calls_{0};
  std::thread thread_;
};

// Rank 1 brings noise to rank 0, before and while both attach, and it leaves nothing there.
void attend_noise(int rank, const Names& names) {
  const std::size_t before = open_descriptors();
  std::string other;
  {
    ShmRendezvous meeting(rank, 2, pith::Secret{});
    const auto mine = meeting.listen(nullptr);
    must(static_cast<bool>(mine), mine.error().message());
    other = names.swap(rank, *mine);
    std::vector<std::string> all(2);
    all[static_cast<std::size_t>(1 - rank)] = other;
    if (rank == 0) {
      names.swap(rank, "ready");
      must(meet(meeting, all, 20 * second_ns) == 1, "the peer was not attached");
    } else {
      std::mt19937 random(1);
      const std::vector<Descriptor> crowd = call_noisily(other, random);
      names.swap(rank, "called");
      const Flood flood(other);
      while (flood.calls() < 200) sched_yield();
      must(meet(meeting, all, 20 * second_ns) == 1, "not attached");
    }
  }
  must(open_descriptors() == before, std::to_string(open_descriptors()) +
                                         " descriptors are open, before there were " +
                                         std::to_string(before));
  names.swap(rank, "attached");
  must(!call(other), "who has attached still takes calls");
}

}  // namespace

TEST_CASE("shm: noisy strangers, with descriptors too", "[shm]") {
  CHECK(run_forked(attend_noise) == "");
}

TEST_CASE("shm: silent strangers, more than are let in at once", "[shm]") {
  CHECK(attended(600, 500) == "");
}

TEST_CASE("shm: silent strangers that take all descriptors", "[shm]") {
  CHECK(attended(100, 60) == "");
}

// The rank's own connection has room, its descriptors have not: one of the numbers hits it.
TEST_CASE("shm: silent strangers that leave room for a connection without descriptors", "[shm]") {
  for (int strangers = 54; strangers <= 58; ++strangers) {
    INFO(strangers);
    CHECK(attended(strangers, 60) == "");
  }
}
