#include "collectives/call.hpp"

#include <fmt/format.h>

namespace pith {

void Call::prepare(Receive& receive, int from, std::uint16_t lane, std::uint32_t step) const {
  receive.comm = context_.comm;
  receive.peer = route(from).peer;
  receive.tag = {context_.comm->id, number_, step, lane_of(lane)};
  receive.digest = digest_;
}

void Call::prepare(Send& send, int to, std::uint16_t lane, std::uint32_t step, Bytes data) const {
  send.comm = context_.comm;
  send.peer = route(to).peer;
  send.header.comm = context_.comm->id;
  send.header.call = number_;
  send.header.step = step;
  send.header.lane = lane_of(lane);
  send.header.length = static_cast<std::uint32_t>(data.size);
  send.header.digest = digest_;
  send.data = data.data;
}

Error Call::fail(const Error& error) const {
  if (!comm().revoked) context_.revoke(context_.revoke_context, error);
  return comm().revoked;
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

Error RecvStage::result_exact() {
  if (Error error = result()) return error;
  if (receive_.length == into_.size) return {};
  return call_.fail(Error(Code::invalid_usage,
                          fmt::format("rank {} sent {} bytes where {} were expected", receive_.peer,
                                      receive_.length, into_.size),
                          receive_.peer));
}

Error BorrowStage::check() const {
  if (receive_.error) return call_.fail(receive_.error);
  if (receive_.length == size_) return {};
  return call_.fail(Error(Code::invalid_usage,
                          fmt::format("rank {} sent {} bytes where {} were expected", receive_.peer,
                                      receive_.length, size_),
                          receive_.peer));
}

void BorrowStage::stage(Borrowed& borrowed) const {
  borrowed.staged = Scratch(call_.compute(), size_);
  call_.compute().run<CopyKernel>({borrowed.staged.bytes().data, borrowed.data, size_});
  borrowed.data = borrowed.staged.bytes().data;
}

}  // namespace pith
