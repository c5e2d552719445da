// A rank with a device, whose scratch it sends from and receives into, over any transport.
#pragma once

#include <array>
#include <cstring>
#include <list>
#include <vector>

#include "core/network_compute.hpp"
#include "transport/ring_support.hpp"

namespace pith_test {

template <class Base>
struct WithDevice : Base {
  using Base::Base;

  SendOp& send_direct(std::uint32_t call, std::size_t bytes) {
    pith::Scratch& scratch = scratches.emplace_back(device, bytes);
    const std::vector<std::byte> data = pattern(bytes, call);
    std::memcpy(scratch.bytes().data, data.data(), bytes);
    SendOp& op = sends.emplace_back();
    op.send.comm = &this->comm;
    op.send.peer = 1 - this->rank();
    op.send.header.comm = this->comm.id;
    op.send.header.call = call;
    op.send.header.length = static_cast<std::uint32_t>(bytes);
    op.send.data = scratch.bytes().data;
    op.send.direct = &scratch;
    op.send.waiter = std::noop_coroutine();
    op.send.remaining = &op.remaining;
    if (this->transport->start(op.send)) op.remaining = 0;
    return op;
  }

  // Which lands in a scratch of its own, the last one.
  ReceiveOp& receive_direct(std::uint32_t call, std::size_t bytes) {
    ReceiveOp& op = receives.emplace_back();
    op.data.resize(bytes);
    op.receive.comm = &this->comm;
    op.receive.peer = 1 - this->rank();
    op.receive.tag = {this->comm.id, call, 0, 0};
    op.receive.into = op.data.data();
    op.receive.room = bytes;
    op.receive.direct = &scratches.emplace_back(device, bytes);
    op.receive.waiter = std::noop_coroutine();
    op.receive.remaining = &op.remaining;
    if (this->mailbox.start(op.receive)) op.remaining = 0;
    return op;
  }

  void revoke() {
    this->comm.revoked = pith::Error(pith::Code::remote, "revoked");
    this->mailbox.quiesce(this->comm, this->comm.revoked);
    this->transport->quiesce(this->comm, this->comm.revoked);
    this->scheduler.run_ready();
    scratches.clear();
  }

  pith::test::NetworkCompute device;
  pith::test::NetworkCompute unreached{0};
  std::list<pith::Scratch> scratches;
  std::list<SendOp> sends;
  std::list<ReceiveOp> receives;
};

inline constexpr std::array<std::size_t, 5> direct_sizes{40000, 65537, 1000000,
                                                         std::size_t{3} << 20, 32768};

template <class DirectRank>
void send_all(DirectRank& self) {
  for (std::uint32_t call = 0; call < 30; ++call) {
    self.send_direct(call, direct_sizes[call % direct_sizes.size()]);
    // Between them some of the host.
    if (call % 3 == 0) self.send(1 - self.rank(), 1000 + call, pattern(70000, call));
  }
  for (SendOp& op : self.sends) self.wait(op);
}

// Whoever receives says where: some land, some are copied, some are borrowed.
template <class DirectRank>
void receive_all(DirectRank& self) {
  for (std::uint32_t call = 0; call < 30; ++call) {
    const std::size_t bytes = direct_sizes[call % direct_sizes.size()];
    if (call % 3 == 0) {
      ReceiveOp& between = self.receive(1 - self.rank(), 1000 + call, 70000);
      self.wait(between);
      must(same(between.data, pattern(70000, call)), "a message between differs");
    }
    const std::vector<std::byte> expected = pattern(bytes, call);
    if (call % 4 == 1) {
      ReceiveOp& copied = self.receive(1 - self.rank(), call, bytes);
      self.wait(copied);
      must(!copied.receive.landed && same(copied.data, expected), "a copied message differs");
    } else if (call % 4 == 2) {
      ReceiveOp& lent = self.receive(1 - self.rank(), call, bytes, true);
      self.wait(lent);
      must(std::memcmp(lent.receive.lease.data(), expected.data(), bytes) == 0,
           "a lent one differs");
      lent.receive.lease.release();
    } else {
      ReceiveOp& landed = self.receive_direct(call, bytes);
      self.wait(landed);
      must(landed.receive.landed, "it did not land");
      must(std::memcmp(self.scratches.back().bytes().data, expected.data(), bytes) == 0,
           "what landed differs");
    }
  }
}

}  // namespace pith_test
