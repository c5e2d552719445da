// What libnccl.so.2 keeps with a communicator beside Pith's own state. Made when it is first
// needed; most communicators never have one.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "nccl/abi.h"
#include "nccl/compression.hpp"
#include "nccl/fallback.hpp"
#include "pith/pith.h"

// A window is a plain registration: nobody reaches it but by the calls of the communicator.
struct ncclWindow_vidmem {
  pithComm_t comm;
  void* buffer;
  std::size_t bytes;
};

namespace pith::nccl {

struct Extension {
  std::atomic<bool> revoked{false};  // by ncclCommRevoke
  int device = 0;
  std::vector<std::unique_ptr<ncclWindow_vidmem>> windows;
  std::unique_ptr<Compression> compression;  // null: not asked for
  std::unique_ptr<FallbackComm> fallback;    // null: none yet
};

// Null where there is none. Precondition: comm is a communicator.
Extension* find_extension(pithComm_t comm);
Extension& extension_of(pithComm_t comm);

}  // namespace pith::nccl
