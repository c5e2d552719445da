// Ranks connected by InfiniBand verbs, over InfiniBand or RoCE: a control connection and, for each
// port, a data connection a pair of ranks, all reliable (RC).
//
// Messages of up to 16 KiB lie in a frame of the control connection, and can be read in place. Long
// ones are announced, granted a place as soon as a receive wants them, and written by the hardware
// from the sender's memory into the receiver's, which both stay registered for the next message. A
// call that is aborted takes its memory from the hardware at once: the data connections stop, and
// start anew for what others still write.
//
// Addresses must travel over an authenticated channel: they are what a stranger would need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "transport/peer_transport.hpp"

namespace pith {

struct VerbsLibrary;
struct VerbsWish;

struct VerbsOptions {
  // Messages of this size and more are written straight to their place.
  std::size_t write_bytes = std::size_t{32} << 10;
  // Bytes of callers' memory that stay registered; 0: everything goes in frames.
  std::size_t cache_bytes = std::size_t{8} << 30;
  // Whether to watch for memory that leaves the process; where that is impossible, nothing is
  // registered.
  bool watch = true;
  // Whether scratch of devices is read and written without the host, where both the device and the
  // RDMA device know dma-bufs. A registration that fails then ends its call.
  bool direct = true;
  // Frames on their way to a rank from each other one, 4 at least; 0: by the number of ranks.
  std::uint32_t window = 0;
};

class VerbsTransport : public PeerTransport {
 public:
  // Fails where no port can be used. `library` must outlive the transport.
  static Expected<std::unique_ptr<VerbsTransport>> create(const VerbsLibrary& library,
                                                          const VerbsWish& wish,
                                                          Scheduler& scheduler, Mailbox& mailbox,
                                                          int rank, int ranks,
                                                          const VerbsOptions& options);
};

// Whether this process can use verbs, and how: the ports' names, and why callers' memory is not
// registered (null: it is).
struct VerbsSupport {
  Error why_not;
  std::vector<std::string> ports;
  Error why_copies;
};
VerbsSupport verbs_support(const VerbsWish& wish, std::size_t cache_bytes);

}  // namespace pith
