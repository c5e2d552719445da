// One of two ranks, threads of one process, without a communicator: only what a call needs, so that
// a benchmark measures the cost of its own part.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "collectives/algorithm.hpp"
#include "core/engine.hpp"
#include "kernels/host_compute.hpp"
#include "transport/local/local.hpp"

namespace pith {

// Must be created by the thread that drives it, since it holds the engine's token.
class BareRank {
 public:
  static constexpr int ranks = 2;

  BareRank(const BareRank&) = delete;
  BareRank& operator=(const BareRank&) = delete;

 protected:
  BareRank(int rank, const std::shared_ptr<LocalHub>& hub)
      : engine_(ranks), transport_(engine_.scheduler(), engine_.mailbox(), rank, hub) {
    engine_.add(transport_);
    routes_[static_cast<std::size_t>(1 - rank)] = {&transport_, 1 - rank};
    context_.scheduler = &engine_.scheduler();
    context_.arena = &engine_.arena();
    context_.mailbox = &engine_.mailbox();
    context_.compute = context_.host = &compute_;
    context_.comm = &comm_;
    context_.routes = routes_;
    context_.rank = rank;
    context_.size = ranks;
    context_.revoke = [](void*, const Error&) {};
    engine_.own();
  }
  ~BareRank() = default;

  void drive(Task<Error> task) {
    task.handle().resume();
    engine_.drive_until([&] { return task.done(); });
  }

  Engine engine_;
  LocalTransport transport_;
  HostCompute compute_;
  CommState comm_;
  std::array<Route, ranks> routes_{};
  CallContext context_;
  std::uint32_t calls_ = 0;
};

}  // namespace pith
