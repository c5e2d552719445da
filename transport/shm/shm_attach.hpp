// How processes of one host find each other and exchange descriptors.
//
// Each rank listens on an abstract UNIX socket with a random name, which the bootstrap sends to the
// others. Abstract names belong to a network namespace, so ranks that cannot share memory do not
// find each other either. Both ends prove by HMAC over fresh nonces that they know the job's
// secret, for any process on the host can read the names. Descriptors are passed over the socket:
// nothing is created in a file system, so nothing can be left behind.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "transport/accept_limiter.hpp"
#include "transport/handshake.hpp"
#include "transport/ring.hpp"
#include "transport/socket.hpp"

namespace pith {

// What ranks exchange besides descriptors; plain data.
struct ShmGreeting {
  static constexpr std::uint64_t right_magic = 0x31304d4853485450;  // "PTHSHM01"
  std::uint64_t magic = right_magic;
  std::int32_t rank = -1;
  std::int32_t ranks = 0;
  RingShape shape;
  std::uint32_t padding = 0;
  std::uint64_t heap_bytes = 0;  // 0: no heap
  std::uint64_t board = 0;       // address of the sender's Board
  std::array<std::byte, 16> nonce{};
  Digest proof{};
};

struct ShmDescriptors {
  Descriptor segment;
  Descriptor doorbell;
  Descriptor heap;
};

class ShmRendezvous {
 public:
  ShmRendezvous(int rank, int ranks, const Secret& secret) : rank_(rank), secret_(secret) {
    greeting_.rank = rank;
    greeting_.ranks = ranks;
  }

  // `board`: the address of our Board in this process.
  Expected<std::string> listen(const void* board);

  struct Met {
    int rank = -1;
    Descriptor socket;  // where it stays open, its end signals the peer's death
    ShmDescriptors descriptors;
    std::uint64_t heap_bytes = 0;
    pid_t pid = 0;  // the peer's, in this process's numbering, from the kernel
    std::uint64_t board = 0;
  };
  // Calls found() for every peer that is reached in time. `mine` is used until this returns and
  // stays the caller's.
  Error meet(std::span<const std::string> names, const RingShape& shape, const int (&mine)[3],
             std::uint64_t heap_bytes, const Patience& patience,
             const std::function<void(Met)>& found);

 private:
  // A connection in its handshake. The dialler says hello; the other end proves itself; the dialler
  // proves itself and sends its descriptors; the other end answers with its own.
  struct Talk {
    Descriptor socket;
    bool dialled = false;
    bool greeted = false;  // the peer's first message has arrived
    bool cut = false;      // not by refusal, so that it may succeed later
    int peer = -1;
    std::uint64_t since_ns = 0;
    std::array<std::byte, 16> nonce{};
    std::array<std::byte, 16> peer_nonce{};
    Met met;
  };

  // A rank to be dialled, again if its backlog is full.
  struct Dial {
    int peer = -1;
    std::uint64_t not_before_ns = 0;
  };

  void plan(std::span<const std::string> names);
  // Whether there are descriptors for one more handshake.
  bool may_begin() const;
  bool may_dial(const Dial& one) const;
  void dial_all(std::span<const std::string> names);
  // False: try again later.
  bool dial(int peer, const std::string& name);
  void dismiss_overdue();
  std::size_t unauthenticated() const;
  std::vector<Talk>::const_iterator oldest_unauthenticated() const;
  int poll_once(std::vector<pollfd>& polled, const Patience& patience);
  void end(std::size_t talk);
  void accept_all();
  // Handles one message; false: this talk has ended.
  bool hear(Talk& talk, const std::function<void(Met)>& found);
  bool hear_hello(Talk& talk, const ShmGreeting& theirs);
  bool hear_proof(Talk& talk, const ShmGreeting& theirs);
  void note_lack(Talk& talk, const ShmGreeting& theirs);
  bool is_starved() const;
  bool say(Talk& talk, bool prove, bool descriptors);
  Digest proof(const Talk& talk, bool of_dialler) const;
  bool finished() const;

  const int rank_;
  const Secret secret_;
  ShmGreeting greeting_;
  Descriptor listener_;
  std::array<int, 3> mine_{};
  AcceptLimiter limiter_;
  std::uint64_t lacking_since_ns_ = 0;  // since when ranks' descriptors get lost; 0: they do not
  std::vector<Dial> dials_;
  std::vector<Talk> talks_;     // the accepted ones in order of age
  std::vector<bool> expected_;  // higher ranks that will dial
};

}  // namespace pith
