// The seam below the control plane: short messages between ranks that know each other's address,
// apart from the data path. Implemented by sockets, threads of one process, and virtual time.
#pragma once

#include <string>
#include <string_view>

namespace pith {

// Handles the events of a wire.
class ControlHandler {
 public:
  virtual void on_message(int from, std::string_view message) = 0;
  // A connection broke: the rank's process has ended, or its host does not answer.
  virtual void on_lost(int rank, std::string_view how) = 0;
  // No connection could be made: the rank is dead, or has left in order a moment ago.
  virtual void on_unreachable(int rank, std::string_view how) = 0;
  // The peer has closed the connection in order.
  virtual void on_hung_up(int rank) = 0;

 protected:
  ~ControlHandler() = default;
};

class ControlWire {
 public:
  virtual ~ControlWire() = default;

  // Never blocks. Connects where there is no connection yet, but only as the higher rank of the
  // pair; the lower one can send once the other has connected. Messages of a pair stay in order.
  virtual void send(int to, std::string message) = 0;
  // Tests by a connection of its own whether the rank is reachable; only a failure is reported.
  virtual void probe(int rank) = 0;
  // Closes a connection once what was sent has left; neither end reports that as a loss.
  virtual void hang_up(int rank) = 0;
};

}  // namespace pith
