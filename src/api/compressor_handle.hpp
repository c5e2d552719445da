// The handle of a compressor in the C API, and the checks before its use.
#pragma once

#include <atomic>
#include <memory>

#include "comm/communicator.hpp"
#include "compress/compressor.hpp"
#include "pith/pith.h"

struct pithCompressor {
  std::shared_ptr<pith::Compressor> state;  // shared with calls in flight
  std::atomic<bool> destroyed{false};       // `state` is released; see destroyed_handles.hpp
};

namespace pith::api {

// Neither NULL nor destroyed.
Error check_compressor(const char* function, pithCompressor_t compressor);

// Claims a compressor until the end of a scope, so that no call can use it meanwhile.
class Claim {
 public:
  Claim(const char* function, Compressor& compressor);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  // Set if a call that has not ended has the claim.
  const Error& error() const { return error_; }
  // Leaves it to other code to release the claim.
  void keep() { compressor_ = nullptr; }

 private:
  Compressor* compressor_;
  Error error_;
};

// That no unfinished call has the claim.
Error check_free(const char* function, const Compressor& compressor);
// That the compressor is not bound to another communicator that still takes calls.
Error check_binding(const char* function, const Compressor& compressor, const Communicator& comm);

}  // namespace pith::api
