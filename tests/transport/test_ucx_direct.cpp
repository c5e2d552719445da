// Messages that UCX sends from scratch and puts into scratch that the network reaches. The scratch
// is the host's here, for UCX's sockets reach no other.
#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "transport/direct_rank.hpp"
#include "transport/ucx_rank.hpp"

namespace {

using namespace pith_test;

struct DirectRank : WithDevice<UcxRank> {
  static UcxOptions always() {
    UcxOptions options;
    options.direct = UcxOptions::Direct::always;
    return options;
  }
  DirectRank(int rank, const Names& names) : WithDevice(rank, names, always()) {
    must_be_connected();
  }
};

}  // namespace

TEST_CASE("ucx: scratch that the network reaches is sent from and received into", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  const auto body = [](int rank, const Names& names) {
    DirectRank self(rank, names);
    must(self.ucx->direct_bytes(self.device) == std::size_t{32} << 10, "another threshold");
    must(self.ucx->direct_bytes(self.unreached) == pith::no_bytes, "the host's is direct");
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
