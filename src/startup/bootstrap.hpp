// One rank's side of the start-up: all ranks exchange what they need to know of each other.
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

// How long a start-up waits.
struct StartTimes {
  StartTimes(double seconds) : join_s(seconds), connect_s(seconds) {}
  StartTimes(double join, double connect) : join_s(join), connect_s(connect) {}

  double join_s;     // until all ranks have come
  double connect_s;  // for what is there: the root to answer, and the rest once all have come
};

// Over a connection to the bootstrap root.
class Bootstrap final : public Gatherer {
 public:
  Bootstrap() = default;
  Bootstrap(StartTimes times, std::shared_ptr<const Cancellation> cancellation)
      : Gatherer(times.join_s, std::move(cancellation)), connect_s_(times.connect_s) {}

  // Waits for the root, which then waits as long for the last rank: how late the root itself was
  // takes nothing of that. Tells it who this process is, so that others can be told.
  static Expected<Bootstrap> join(const UniqueId& id, int rank, int ranks, StartTimes times,
                                  std::shared_ptr<const Cancellation> cancellation = {});

  Expected<std::vector<std::string>> gather(const std::string& mine) override;
  Error failure() const override;
  // This rank cannot go on, for a cause of its own: the root tells the others. Does not wait.
  void give_up(const Error& error);
  // Where else to hear that the start-up has failed.
  void listen_to(std::function<Error()> source) { source_ = std::move(source); }

  // This end of the connection: an address of ours on the root's network.
  Expected<std::string> host() const;

 private:
  // One call at the root. `refused` is set where another call would have the same end.
  Error call(const UniqueId& id, int rank, int ranks, bool& refused);
  Expected<std::string> exchange(const std::string& mine);
  // While the root may be silent for good reasons: until then, or until cancelled.
  Patience silence_until(std::uint64_t deadline_ns) const;
  // For what is there.
  std::uint64_t connect_deadline() const;
  Error root_lost() const;
  // What an error of the connection means.
  Error of_root(const Error& error) const;

  Descriptor connection_;
  std::string root_;    // for messages
  int root_rank_ = -1;  // whose process it is, as far as is known
  double connect_s_ = 0;
  std::function<Error()> source_;
};

}  // namespace pith
