#include "collectives/call.hpp"

#include <fmt/format.h>

namespace pith {

Error Call::fail(const Error& error) const {
  if (!comm().revoked) context_.revoke(context_.revoke_context, error);
  return comm().revoked;
}

Error message_too_long(std::size_t bytes) {
  return {Code::invalid_usage,
          fmt::format("a message of {} bytes, of at most {}: this algorithm does not cut its "
                      "messages, and is not to be forced (PITH_ALGO) on vectors this long",
                      bytes, message_bytes_max)};
}

Error Call::copy_from(int peer, std::uint64_t where, Bytes into) const {
  const Route& way = route(peer);
  const Error error =
      comm().revoked ? comm().revoked : way.transport->copy_from(way.peer, where, into);
  return error ? fail(error) : error;
}

Error Call::copy_to(int peer, std::uint64_t where, Bytes from) const {
  const Route& way = route(peer);
  const Error error =
      comm().revoked ? comm().revoked : way.transport->copy_to(way.peer, where, from);
  return error ? fail(error) : error;
}

Error wrong_length(const Call& call, const Receive& receive, std::size_t expected) {
  return call.fail(Error(Code::invalid_usage,
                         fmt::format("rank {} sent {} bytes where {} were expected", receive.peer,
                                     receive.length, expected),
                         receive.peer));
}

}  // namespace pith
