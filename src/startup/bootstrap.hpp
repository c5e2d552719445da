// One rank's side of the start-up: an all-gather among ranks that are not connected yet.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/gatherer.hpp"
#include "core/clock.hpp"
#include "startup/unique_id.hpp"
#include "transport/socket.hpp"

namespace pith {

// Timeouts of a start-up.
struct StartTimes {
  StartTimes(double seconds) : join_s(seconds), connect_s(seconds) {}
  StartTimes(double join, double connect) : join_s(join), connect_s(connect) {}

  double join_s;     // until the last rank has joined
  double connect_s;  // for all else: the root's answer, and the steps after the join
};

// Gathers over a connection to the bootstrap root.
class Bootstrap final : public Gatherer {
 public:
  Bootstrap() = default;
  Bootstrap(StartTimes times, std::shared_ptr<const Cancellation> cancellation)
      : Gatherer(times.join_s, std::move(cancellation)), connect_s_(times.connect_s) {}

  // Connects to the root and says which process this is, for error messages at other ranks. Time
  // spent waiting for the root does not shorten the wait for the last rank.
  // `obstacle`: why the start-up cannot succeed, as far as this process knows; may be empty. Asked
  // while this rank waits, until forget_obstacle().
  static Expected<Bootstrap> join(const UniqueId& id, int rank, int ranks, StartTimes times,
                                  std::shared_ptr<const Cancellation> cancellation = {},
                                  std::function<Error()> obstacle = {});
  void forget_obstacle() { obstacle_ = {}; }

  Expected<std::vector<std::string>> gather(const std::string& mine) override;
  Error failure() const override;
  // Reports that this rank cannot go on; the root tells the others. Does not block.
  void give_up(const Error& error);
  // A second source of start-up failures, asked by `failure`.
  void listen_to(std::function<Error()> source) { source_ = std::move(source); }

  // The local address of the connection, on the network that leads to the root.
  Expected<std::string> host() const;

 private:
  // One attempt. `refused` is set where another attempt would end in the same way.
  Error call(const UniqueId& id, int rank, int ranks, bool& refused);
  Expected<std::string> exchange(const std::string& mine);
  // Waits up to the deadline, or until cancelled.
  Patience silence_until(std::uint64_t deadline_ns) const;
  // The deadline for an answer that needs no other rank to appear.
  std::uint64_t connect_deadline() const;
  // What only this rank may know: it is cancelled, or there is an obstacle.
  Error own_failure() const;
  // What others have told of a failure.
  Error told_failure() const;
  Error root_lost() const;
  // Explains an error of the connection.
  Error of_root(const Error& error) const;

  Descriptor connection_;
  std::string root_;    // for messages
  int root_rank_ = -1;  // the rank whose process runs the root; -1: not known
  double connect_s_ = 0;
  std::function<Error()> source_;
  std::function<Error()> obstacle_;
};

}  // namespace pith
