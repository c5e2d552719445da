// The handle of a compressor in the C API, and who may use it.
#pragma once

#include <atomic>
#include <memory>

#include "comm/communicator.hpp"
#include "compress/compressor.hpp"
#include "pith/pith.h"

struct pithCompressor {
  std::shared_ptr<pith::Compressor> state;  // shared with calls in flight
  std::atomic<bool> destroyed{false};       // there is no state; see destroyed_handles.hpp
};

namespace pith::api {

// NULL or destroyed is an error.
Error check_compressor(const char* function, pithCompressor_t compressor);

// Holds a compressor for the length of a scope, so that no call touches it meanwhile.
class Claim {
 public:
  Claim(const char* function, Compressor& compressor);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  // Set where a call that has not ended holds it.
  const Error& error() const { return error_; }
  // Somebody else lets go of it.
  void keep() { compressor_ = nullptr; }

 private:
  Compressor* compressor_;
  Error error_;
};

// Error where a call that has not ended holds it.
Error check_free(const char* function, const Compressor& compressor);
// Error where the compressor belongs to another communicator that still takes calls.
Error check_binding(const char* function, const Compressor& compressor, const Communicator& comm);

}  // namespace pith::api
