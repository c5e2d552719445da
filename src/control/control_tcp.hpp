// The control plane's wire between processes: one authenticated connection for each edge of the
// tree, made when it is first needed.
//
// The end of a process is seen at once, a host that no longer answers after `heartbeat_s`: the
// kernel asks on idle connections, and of what is under way it knows the answers. A process that is
// merely stopped has a kernel that answers, also when it has no room any more. Thread-safe.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "control/control_frames.hpp"
#include "control/control_wire.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"
#include "transport/tcp/tcp_silence.hpp"

namespace pith {

struct ControlTcpOptions {
  int rank = 0;
  int ranks = 1;
  Secret secret{};
  double heartbeat_s = 10;
  double handshake_s = 120;  // a peer whose kernel answers may be busy, as at the start of many
  PortRange ports;
};

class ControlTcp final : public ControlWire {
 public:
  explicit ControlTcp(const ControlTcpOptions& options) : options_(options) {}

  // The address for the other ranks.
  Expected<std::string> listen(const std::string& host);
  // By rank. Before anything is sent.
  void set_addresses(std::vector<std::string> addresses) { addresses_ = std::move(addresses); }

  void send(int to, std::string message) override;
  void probe(int rank) override;
  void hang_up(int rank) override;

  // Moves what can be moved without waiting and tells `handler` what has come.
  void progress(ControlHandler& handler);
  // Says goodbye to everybody and writes what is left, as far as the deadline allows.
  void close(std::uint64_t deadline_ns);
  // Readable when progress() has something to do.
  int descriptor() const { return events_.get(); }
  // That stand or are being made.
  std::size_t connections() const {
    const std::lock_guard lock(mutex_);
    return links_.size() + unauthenticated_.size();
  }

 private:
  enum class State : std::uint8_t { connecting, shaking, open };
  struct Link {
    int rank = -1;  // -1: not proved yet
    Descriptor fd;
    Handshake handshake;
    State state = State::shaking;
    std::uint64_t deadline_ns = 0;  // until it must be open
    ControlFrames in;
    std::string out;
    std::size_t out_done = 0;
    bool writing = false;  // watched for room
    bool leaving = false;  // goodbye follows what is in `out`
    bool heard = false;    // a message has come
    TcpSilence silence;
    std::string ended;  // why it is over; empty while it is not
  };
  // What the handler is to be told once nothing is locked.
  using News = std::vector<std::function<void(ControlHandler&)>>;

  void dial(int rank, std::string first);
  void tell_end(const Link& link, News& news);
  void look_at_links();
  bool has_room();
  void listen_while_room();
  void accept_connections();
  void step(Link& link, News& news);
  Link* connect_to(int rank, std::list<Link>& links);
  bool connected(Link& link);
  void shake(Link& link);
  void read(Link& link, News& news);
  void take_messages(Link& link, News& news);
  bool write(Link& link);
  void end(Link& link, std::string how) { link.ended = std::move(how); }
  void watch(Link& link, bool added);
  void adopt(std::list<Link>::iterator caller);

  const ControlTcpOptions options_;
  std::vector<std::string> addresses_;
  Descriptor listener_;
  Descriptor events_;
  mutable std::mutex mutex_;
  std::list<Link> links_;            // with ranks
  std::list<Link> unauthenticated_;  // that have not proved themselves
  std::list<Link> probes_;           // that only connect
  News late_;                        // came up while no progress() was under way
  bool listens_ = true;              // whether the listener is watched
  std::uint64_t accepts_again_ns_ = 0;
  std::uint64_t next_look_ns_ = 0;
};

}  // namespace pith
