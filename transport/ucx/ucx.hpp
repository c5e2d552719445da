// Ranks connected by UCX: active messages over whatever UCX finds (InfiniBand, RoCE, sockets; not
// its shared memory). Header and payload of a message can be read before a receive is posted.
//
// UCX sees only memory of this library, pooled buffers and scratch of devices. The user's is never
// registered, so nothing has to watch the user's munmap, and an abort leaves none of the user's
// bytes with the hardware. A message in a device's scratch stays there until its receiver wants it,
// and is then fetched in one go, straight into device scratch if the receiver wants it there.
// Flow control is ours too (see UcxOutbox), for UCX takes whatever comes.
//
// Addresses must travel over an authenticated channel.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "transport/handshake.hpp"
#include "transport/peer_transport.hpp"

namespace pith {

struct UcxOptions {
  std::string host;  // a loopback address keeps UCX off the network; see HOST in the settings
  // At most this many bytes are in flight to a peer or waiting there; the same on all ranks.
  std::size_t window_bytes = std::size_t{512} << 10;
  bool rdma_only = false;  // fail where UCX finds no RDMA
  // Pieces of this size and more go by rendezvous; 0: where there is RDMA, from 32 KiB on.
  std::size_t rendezvous_bytes = 0;
  // Whether the network reads and writes scratch of CUDA devices; may differ between ranks.
  enum class Direct : std::uint8_t { where_known, never, always };
  Direct direct = Direct::where_known;
};

// What UCX can do for this process.
struct UcxSupport {
  Error why_not;  // null: it can be used
  std::string version;
  std::vector<std::string> devices;  // "tcp/eth0", "rc_mlx5/mlx5_0:1"
  bool rdma = false;
};
UcxSupport ucx_support(const std::string& host);
// False where no device of this host could make UCX faster than sockets. Does not load UCX.
bool host_has_rdma();

class UcxTransport : public PeerTransport {
 public:
  // Peers are numbered by rank. An error where UCX cannot be used.
  static Expected<std::unique_ptr<UcxTransport>> create(Scheduler& scheduler, Mailbox& mailbox,
                                                        int rank, int ranks, const Secret& secret,
                                                        const UcxOptions& options = {});

  // Messages dropped because they did not prove the job's secret.
  virtual std::uint64_t unauthenticated() const = 0;
};

}  // namespace pith
