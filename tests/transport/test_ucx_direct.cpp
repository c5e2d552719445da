// Messages that UCX sends from scratch and puts into scratch that the network reaches. The scratch
// is the host's here, for UCX's sockets reach no other.
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "core/network_compute.hpp"
#include "transport/ucx_rank.hpp"

namespace {

using namespace pith_test;
using pith::Scratch;
using pith::test::NetworkCompute;

// A rank with a device of its own.
struct DirectRank : UcxRank {
  static UcxOptions always() {
    UcxOptions options;
    options.direct = UcxOptions::Direct::always;
    return options;
  }
  DirectRank(int rank, const Names& names) : UcxRank(rank, names, always()) { must_be_connected(); }

  SendOp& send_direct(std::uint32_t call, std::size_t bytes) {
    Scratch& scratch = scratches.emplace_back(device, bytes);
    const std::vector<std::byte> data = pattern(bytes, call);
    std::memcpy(scratch.bytes().data, data.data(), bytes);
    SendOp& op = sends.emplace_back();
    op.send.comm = &comm;
    op.send.peer = 1 - rank();
    op.send.header.comm = comm.id;
    op.send.header.call = call;
    op.send.header.length = static_cast<std::uint32_t>(bytes);
    op.send.data = scratch.bytes().data;
    op.send.direct = &scratch;
    op.send.waiter = std::noop_coroutine();
    op.send.remaining = &op.remaining;
    if (transport->start(op.send)) op.remaining = 0;
    return op;
  }

  // Which lands in a scratch of its own, the last one.
  ReceiveOp& receive_direct(std::uint32_t call, std::size_t bytes) {
    ReceiveOp& op = receives.emplace_back();
    op.data.resize(bytes);
    op.receive.comm = &comm;
    op.receive.peer = 1 - rank();
    op.receive.tag = {comm.id, call, 0, 0};
    op.receive.into = op.data.data();
    op.receive.room = bytes;
    op.receive.direct = &scratches.emplace_back(device, bytes);
    op.receive.waiter = std::noop_coroutine();
    op.receive.remaining = &op.remaining;
    if (mailbox.start(op.receive)) op.remaining = 0;
    return op;
  }

  void revoke() {
    comm.revoked = Error(Code::remote, "revoked");
    mailbox.quiesce(comm, comm.revoked);
    transport->quiesce(comm, comm.revoked);
    scheduler.run_ready();
    scratches.clear();
  }

  NetworkCompute device;
  std::list<Scratch> scratches;
  std::list<SendOp> sends;
  std::list<ReceiveOp> receives;
};

constexpr std::array<std::size_t, 5> sizes{40000, 65537, 1000000, std::size_t{3} << 20, 32768};

void send_all(DirectRank& self) {
  for (std::uint32_t call = 0; call < 30; ++call) {
    self.send_direct(call, sizes[call % sizes.size()]);
    // Between them such as go by slots.
    if (call % 3 == 0) self.send(1 - self.rank(), 1000 + call, pattern(70000, call));
  }
  for (SendOp& op : self.sends) self.wait(op);
}

// Whoever receives says where: some land, some are copied, some are borrowed.
void receive_all(DirectRank& self) {
  for (std::uint32_t call = 0; call < 30; ++call) {
    const std::size_t bytes = sizes[call % sizes.size()];
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

}  // namespace

TEST_CASE("ucx: scratch that the network reaches is sent from and received into", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  const auto body = [](int rank, const Names& names) {
    DirectRank self(rank, names);
    must(self.ucx->direct_bytes(MemoryKind::cuda) == std::size_t{32} << 10, "another threshold");
    must(self.ucx->direct_bytes(MemoryKind::host) == pith::no_bytes, "the host's is direct");
    rank == 0 ? send_all(self) : receive_all(self);
    self.meet(1 - rank, 5000);
    rank == 1 ? send_all(self) : receive_all(self);
    leave(self);
    must(self.device.withheld == 0, "scratch is withheld");
  };
  CHECK(run_threads(body) == "");
  CHECK(run_forked(body) == "");
}

TEST_CASE("ucx: what is not wanted stays with its sender, and is given up with its call", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  std::atomic<bool> revoked{false};  // by the sender, and looked at
  CHECK(run_threads([&](int rank, const Names& names) {
          DirectRank self(rank, names);
          if (rank == 0) {
            for (std::uint32_t call = 0; call < 20; ++call) self.send_direct(call, 1000000);
          }
          self.meet(1 - rank, 6000);
          for (int i = 0; i < 2000; ++i) self.turn();
          must(self.mailbox.buffers_out() == 0, "it was fetched");
          for (SendOp& op : self.sends) must(op.remaining == 1, "a send has ended");
          self.meet(1 - rank, 6001);
          // Its sends end at once; the other rank may still read what they were sent from.
          if (rank == 0) self.revoke();
          for (SendOp& op : self.sends) must(op.remaining == 0, "a send goes on");
          must(self.device.out == 0, "scratch is out");
          must(self.device.withheld == static_cast<int>(self.sends.size()), "scratch is free");
          if (rank == 0) revoked = true;
          while (!revoked) std::this_thread::yield();
          if (rank == 1) self.revoke();
          self.until([&] { return self.device.withheld == 0; }, "scratch");
          self.comm.revoked = Error();
          self.comm.id = 2;
          leave(self);
        }) == "");
}

TEST_CASE("ucx: scratch that a message is on its way to is withheld", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  CHECK(run_threads([](int rank, const Names& names) {
          DirectRank self(rank, names);
          constexpr std::size_t bytes = std::size_t{64} << 20;
          if (rank == 0) {
            self.send_direct(1, bytes);
          } else {
            ReceiveOp& op = self.receive_direct(1, bytes);
            // Until it is being fetched: some of it is there.
            const std::byte* const last = self.scratches.back().bytes().data;
            self.until(
                [&] {
                  return std::any_of(last, last + 4096,
                                     [](std::byte b) { return b != std::byte{}; });
                },
                "the first bytes");
            must(op.remaining == 1, "it is there already");
            self.revoke();
            must(op.remaining == 0 && op.receive.error, "the receive goes on");
            must(self.device.withheld == 1, "its scratch is free");
          }
          self.until([&] { return self.device.withheld == 0; }, "scratch");
          if (rank == 0) self.wait(self.sends.back());
          self.comm.revoked = Error();
          self.comm.id = 2;
          leave(self);
        }) == "");
}

TEST_CASE("ucx: a killed peer ends what is sent from scratch and into scratch", "[ucx]") {
  if (absent()) return;
  const Ways set("all");
  const auto body = [](int rank, const Names& names) {
    DirectRank self(rank, names);
    if (rank == 1) {
      self.send_direct(4, std::size_t{64} << 20);
      self.meet(0, 7000);
      kill(getpid(), SIGKILL);
    }
    SendOp& unwanted = self.send_direct(3, std::size_t{1} << 20);
    self.meet(1, 7000);
    ReceiveOp& cut = self.receive_direct(4, std::size_t{64} << 20);
    self.until([&] { return static_cast<bool>(self.lost); }, "loss");
    must(unwanted.remaining == 0, "a send to the dead goes on");
    must(cut.remaining == 0 && cut.receive.error.rank() == 1, "received from the dead");
    self.ucx.reset();
    self.scratches.clear();
    must(self.device.withheld == 0 && self.device.out == 0, "scratch is out");
  };
  CHECK(run_forked_to_die(body) == "");
}
