// The cost of coroutines: the ring all-reduce of collectives/dense/allreduce_ring.cpp against the
// same ring written by hand as a state machine, over the same transport, mailbox and kernels. Two
// ranks are threads of one process; both kinds run in turns, and the medians are compared.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "collectives/typed_span.hpp"
#include "core/clock.hpp"
#include "perf/bare_rank.hpp"

namespace pith {

Task<Error> allreduce_ring(Call& call, CollectiveArgs args);

namespace {

constexpr int ranks = BareRank::ranks;

// A coroutine handle is a pointer to two function pointers; this one resumes a state machine.
struct HandMadeFrame {
  void (*resume)(HandMadeFrame* self);
  void (*destroy)(HandMadeFrame* self);
};

// One lane of the ring for two ranks: per chunk one exchange with a reduction, one without.
class RingByHand : public HandMadeFrame {
 public:
  RingByHand(Call& call, const CollectiveArgs& args)
      : HandMadeFrame{[](HandMadeFrame* self) { static_cast<RingByHand*>(self)->turn(); }, nullptr},
        call_(call),
        args_(args),
        chunk_(chunk_elements(args.tuning, args.type)),
        chunks_(chunks_in(block(args.count, ranks, 0).size, chunk_)),
        peer_(1 - call.rank()) {}

  void start() { post(); }
  bool done() const { return k_ == chunks_; }

 private:
  Bytes piece(Bytes vector, int owner) const {
    return part(vector, args_.type, chunk_of(block(args_.count, ranks, owner), chunk_, k_));
  }

  // Starts both operations of this step; continues while they complete immediately.
  void post() {
    while (k_ < chunks_) {
      const Bytes out = first_ ? piece(args_.send, call_.rank()) : piece(args_.recv, peer_);
      const Bytes in = piece(args_.recv, first_ ? peer_ : call_.rank());
      send_ = Send();
      receive_ = Receive();
      call_.prepare(send_, peer_, 0, step_, out);
      call_.prepare(receive_, peer_, 0, step_);
      receive_.borrow = first_;
      receive_.into = in.data;
      receive_.room = in.size;
      send_.waiter = receive_.waiter = std::coroutine_handle<>::from_address(this);
      send_.remaining = receive_.remaining = &remaining_;
      remaining_ = 3;
      if (call_.route(peer_).transport->start(send_)) --remaining_;
      if (call_.mailbox().start(receive_)) --remaining_;
      if (--remaining_ != 0) return;
      finish();
    }
  }
  void turn() {
    finish();
    post();
  }
  void finish() {
    ++step_;
    if (first_) {
      const Bytes in = piece(args_.recv, peer_);
      reduce(call_, args_, in, receive_.lease.data(), piece(args_.send, peer_).data);
      receive_.lease.release();
    } else {
      ++k_;
    }
    first_ = !first_;
  }

  Call& call_;
  const CollectiveArgs& args_;
  std::size_t chunk_;
  std::size_t chunks_;
  int peer_;
  std::size_t k_ = 0;
  std::uint32_t step_ = 0;
  bool first_ = true;
  int remaining_ = 0;
  Send send_;
  Receive receive_;
};

class Rank : public BareRank {
 public:
  Rank(int rank, const std::shared_ptr<LocalHub>& hub) : BareRank(rank, hub) {}

  void by_coroutine(const CollectiveArgs& args) {
    Call call(context_, ++calls_, 1);
    drive(allreduce_ring(call, args));
  }
  void by_hand(const CollectiveArgs& args) {
    Call call(context_, ++calls_, 1);
    RingByHand ring(call, args);
    ring.start();
    engine_.drive_until([&] { return ring.done(); });
  }
};

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  sched_setaffinity(0, sizeof set, &set);
}

struct Figures {
  double coroutine_ns;
  double by_hand_ns;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Both ranks run the same batches in the same order, so no further synchronisation is needed.
Figures measure(std::array<Rank, ranks>& both, std::size_t bytes, int batches, int calls) {
  Figures figures{};
  const auto body = [&](int rank) {
    pin(rank);
    std::vector<std::byte> send(bytes);
    std::vector<std::byte> recv(bytes);
    CollectiveArgs args;
    args.send = {send.data(), bytes};
    args.recv = {recv.data(), bytes};
    args.count = bytes / sizeof(float);
    args.tuning.lanes = 1;
    std::array<std::vector<double>, 2> times;
    for (int batch = 0; batch < 2 * batches; ++batch) {
      const bool by_hand = batch % 2 != 0;
      const std::uint64_t begin = monotonic_ns();
      for (int i = 0; i < calls; ++i) {
        by_hand ? both[static_cast<std::size_t>(rank)].by_hand(args)
                : both[static_cast<std::size_t>(rank)].by_coroutine(args);
      }
      times[by_hand].push_back(static_cast<double>(monotonic_ns() - begin) / calls);
    }
    if (rank == 0) figures = {median(times[0]), median(times[1])};
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  return figures;
}

}  // namespace
}  // namespace pith

int main() {
  using namespace pith;
  const auto hub = LocalHub::create(ranks);
  if (!hub) return 1;
  std::array<Rank, ranks> both{Rank(0, *hub), Rank(1, *hub)};
  fmt::print("{:>10} {:>14} {:>12} {:>8} {:>12}\n", "bytes", "coroutine/ns", "by hand/ns", "ratio",
             "ns a step");
  for (const std::size_t bytes : {8u, 256u, 4096u, 65536u, 1u << 20}) {
    const int calls = bytes <= 4096 ? 5000 : 200;
    const Figures figures = measure(both, bytes, 15, calls);
    // Two steps per chunk.
    const double steps = 2 * std::max(1.0, static_cast<double>(bytes) / 2 / 65536);
    fmt::print("{:>10} {:>14.0f} {:>12.0f} {:>8.3f} {:>12.1f}\n", bytes, figures.coroutine_ns,
               figures.by_hand_ns, figures.coroutine_ns / figures.by_hand_ns,
               (figures.coroutine_ns - figures.by_hand_ns) / steps);
  }
  return 0;
}
