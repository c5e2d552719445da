// Messages that verbs sends from a device's scratch and writes into one, registered by a dma-buf.
// The scratch is the host's here: no device has run this.
#include <cerrno>

#include "catch.hpp"
#include "tests/transport/direct_rank.hpp"
#include "tests/transport/verbs_rank.hpp"
#include "transport/verbs/verbs_memory.hpp"

namespace {

using namespace pith_test;
using pith::test::NetworkCompute;

int dmabufs = 0;  // registered so far

ibv_mr* register_dmabuf(ibv_pd* domain, std::uint64_t, std::size_t bytes, std::uint64_t address,
                        int descriptor, int access) {
  if (descriptor < 0) {
    errno = EBADF;
    return nullptr;
  }
  ++dmabufs;
  return FakeVerbs::library().reg_mr(domain, reinterpret_cast<void*>(address), bytes, access);
}

const pith::VerbsLibrary& library_with_dmabufs() {
  static const pith::VerbsLibrary library = [] {
    pith::VerbsLibrary with = FakeVerbs::library();
    with.reg_dmabuf_mr = register_dmabuf;
    return with;
  }();
  return library;
}

struct VerbsWithDevice : WithDevice<VerbsRank> {
  VerbsWithDevice(int rank, const Names& names)
      : WithDevice(rank, names, unwatched(), VerbsWish{}, library_with_dmabufs()) {}
  void come_back() {
    comm.revoked = Error();
    comm.id = 2;
  }
};

struct CleanDmabufs : CleanNetwork {
  CleanDmabufs() { dmabufs = 0; }
};

}  // namespace

TEST_CASE("verbs: a device's scratch is sent from and written into", "[verbs]") {
  const CleanDmabufs clean;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsWithDevice self(rank, names);
          must(self.verbs->direct_bytes(self.device) == unwatched().write_bytes, "never direct");
          must(self.verbs->direct_bytes(self.unreached) == pith::no_bytes, "the host's is direct");
          self.device.exports = false;
          must(self.verbs->direct_bytes(self.device) == pith::no_bytes, "direct without dma-bufs");
          self.device.exports = true;
          rank == 0 ? send_all(self) : receive_all(self);
          self.meet(1 - rank, 5000);
          rank == 1 ? send_all(self) : receive_all(self);
          self.leave();
          must(self.device.withheld == 0, "scratch is withheld");
        }) == "");
  CHECK(dmabufs > 0);
}

TEST_CASE("verbs: devices go by the host where dma-bufs are unknown or unwanted", "[verbs]") {
  const CleanDmabufs clean;
  VerbsOptions options = unwatched();
  const bool wanted = GENERATE(false, true);
  options.direct = wanted;
  const pith::VerbsLibrary& library = wanted ? FakeVerbs::library() : library_with_dmabufs();
  CHECK(run_threads([&](int rank, const Names& names) {
          WithDevice<VerbsRank> self(rank, names, options, VerbsWish{}, library);
          must(self.verbs->direct_bytes(self.device) == pith::no_bytes, "direct");
          self.leave();
        }) == "");
}

TEST_CASE("verbs: scratch that cannot be registered ends its messages with an error", "[verbs]") {
  const CleanDmabufs clean;
  const int refused = GENERATE(0, 1);  // whose
  CHECK(run_threads([&](int rank, const Names& names) {
          VerbsWithDevice self(rank, names);
          self.meet(1 - rank, 1);
          pith::Scratch scratch(self.device, 100000);
          self.device.exports = rank != refused;
          must(self.verbs->reaches(scratch) == (rank != refused), "who reaches its device");
          if (rank == 0) {
            SendOp& send = self.send_direct(2, 100000);
            self.until([&] { return send.remaining == 0; }, "send");
            must(static_cast<bool>(send.send.error) == (refused == 0), "the wrong end fails");
          } else if (refused == 1) {
            ReceiveOp& receive = self.receive_direct(2, 100000);
            self.until([&] { return receive.remaining == 0; }, "receive");
            must(static_cast<bool>(receive.receive.error), "it was received");
          }
          self.leave();
        }) == "");
}

TEST_CASE("verbs: scratch of one device is registered once, apart from all other memory",
          "[verbs]") {
  const CleanDmabufs clean;
  CHECK(guarded([] {
          auto rails = pith::VerbsRail::open_all(library_with_dmabufs(), VerbsWish{});
          must(static_cast<bool>(rails), "no rail");
          pith::VerbsMemory memory(library_with_dmabufs(), *rails, std::size_t{1} << 30);
          NetworkCompute device;
          pith::Scratch scratch(device, std::size_t{1} << 16);
          pith::VerbsRegion* const first = memory.acquire(scratch);
          must(first && memory.acquire(scratch) == first && dmabufs == 1, "registered twice");
          const std::byte* const data = scratch.bytes().data;
          pith::VerbsRegion* const host = memory.acquire(data, 100, true);
          must(host && host != first, "the host's memory is taken for the device's");
          memory.leaves(data, scratch.bytes().size);
          must(!first->stale && host->stale, "the device's memory leaves with the host's");
          memory.release(*host);
          memory.release(*first);
          memory.release(*first);
        }) == "");
}

TEST_CASE("verbs: an aborted call's scratch is left alone", "[verbs]") {
  const CleanDmabufs clean;
  const bool by_sender = GENERATE(false, true);
  FakeVerbs::instance().requests_a_look = 1;
  FakeVerbs::instance().request_bytes = 4096;
  CHECK(run_threads([&](int rank, const Names& names) {
          VerbsWithDevice self(rank, names);
          self.meet(1 - rank, 1);
          constexpr std::size_t bytes = std::size_t{4} << 20;
          const bool sends = rank == 0;
          if (sends) self.send_direct(2, bytes);
          if (!sends) self.receive_direct(2, bytes);
          for (int turn = 0; turn < 100; ++turn) self.turn();
          const bool aborts = sends == by_sender;
          if (aborts) self.revoke();
          names.swap(rank, "one has given up");
          if (!aborts) self.revoke();
          must(self.device.out == 0 && self.device.withheld == 0, "scratch is out");
          self.come_back();
          self.meet(1 - rank, 3);
          must(self.device.is_left_alone(), "what was given back has been written");
          self.leave();
        }) == "");
}

TEST_CASE("verbs: data connections that break write a device's scratch again", "[verbs]") {
  const CleanDmabufs clean;
  FakeVerbs::instance().requests_a_look = 1;
  FakeVerbs::instance().request_bytes = 4096;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsWithDevice self(rank, names);
          self.meet(1 - rank, 1);
          constexpr std::size_t bytes = std::size_t{1} << 20;
          if (rank == 0) {
            SendOp& send = self.send_direct(2, bytes);
            for (int turn = 0; turn < 50; ++turn) self.turn();
            FakeVerbs::break_pairs();
            self.wait(send);
          } else {
            self.wait(self.receive_direct(2, bytes));
            must(std::memcmp(self.scratches.back().bytes().data, pattern(bytes, 2).data(), bytes) ==
                     0,
                 "contents differ");
          }
          self.leave();
        }) == "");
}
