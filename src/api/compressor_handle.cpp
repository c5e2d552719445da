#include "api/compressor_handle.hpp"

#include <fmt/format.h>

#include "api/check.hpp"

namespace pith::api {

namespace {

Error busy(const char* function, const Compressor& compressor) {
  const char* with = Group::of_this_thread().has(compressor)
                         ? "is in this group already, expected one call a group"
                         : "is busy, expected one whose last call has ended";
  return {Code::invalid_usage, fmt::format("{}: compressor {}", function, with)};
}

}  // namespace

Error check_compressor(const char* function, pithCompressor_t compressor) {
  Error error = check_pointer(function, "compressor", compressor);
  if (error || !compressor->destroyed.load(std::memory_order_relaxed)) return error;
  return {Code::invalid_argument,
          fmt::format("{}: compressor was destroyed, expected a compressor", function)};
}

Claim::Claim(const char* function, Compressor& compressor) : compressor_(&compressor) {
  if (compressor.claim()) return;
  compressor_ = nullptr;
  error_ = busy(function, compressor);
}

Error check_free(const char* function, const Compressor& compressor) {
  return compressor.is_claimed() ? busy(function, compressor) : Error();
}

Claim::~Claim() {
  if (compressor_) compressor_->release();
}

Error check_binding(const char* function, const Compressor& compressor, const Communicator& comm) {
  const auto bound = std::static_pointer_cast<Communicator>(compressor.binding.lock());
  if (!bound || bound.get() == &comm || !bound->compressors().holds()) return {};
  return {Code::invalid_usage,
          fmt::format("{}: compressor is bound to another communicator, that of its first call, "
                      "until pithCompressorReset, or until that one is shrunk, revoked or "
                      "destroyed",
                      function)};
}

}  // namespace pith::api
