// The seam below the control plane: short messages between ranks that know each other's address,
// apart from the data path. Sockets, threads of one process, and virtual time implement it.
#pragma once

#include <string>
#include <string_view>

namespace pith {

// Who hears what a wire has to tell.
class ControlHandler {
 public:
  virtual void on_message(int from, std::string_view message) = 0;
  // A connection broke: the rank's process has ended, or its host does not answer.
  virtual void on_lost(int rank, std::string_view how) = 0;
  // No connection could be made: the rank is dead, or has left in order a moment ago.
  virtual void on_unreachable(int rank, std::string_view how) = 0;
  // It has let go of the connection.
  virtual void on_hung_up(int rank) = 0;

 protected:
  ~ControlHandler() = default;
};

class ControlWire {
 public:
  virtual ~ControlWire() = default;

  // Never waits. Connects where there is no connection yet; only the higher rank of a pair does
  // that, and the lower one sends to those that have called it. Messages of a pair stay in order.
  virtual void send(int to, std::string message) = 0;
  // Looks whether the rank can be reached, apart from any connection: only a failure is told.
  virtual void probe(int rank) = 0;
  // Lets go of a connection once what was sent has left; neither end takes that for a loss.
  virtual void hang_up(int rank) = 0;
};

}  // namespace pith
