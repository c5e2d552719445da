// The control plane's wire between processes: one authenticated connection for each edge of the
// tree, made when it is first needed.
//
// Between hosts a connection that breaks while both processes live is made anew, and nothing is
// lost. The end of a process is seen at once, as nobody listens at its address any more, a host
// that no longer answers after `heartbeat_s`: by TCP keepalive on idle connections, by missing
// acknowledgements on busy ones. The kernel of a stopped process still answers, even with full
// buffers. Thread-safe.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "control/control_wire.hpp"
#include "control/observers/observers.hpp"
#include "control/tcp/control_link.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"
#include "transport/tcp/tcp_reconnect.hpp"

namespace pith {

struct ControlTcpOptions {
  int rank = 0;
  int ranks = 1;
  Secret secret{};
  double heartbeat_s = 10;
  double handshake_s = 120;  // long: the peer's kernel answers, but its process may be busy in a
                             // big start-up
  PortRange ports;
  Reconnect reconnect = Reconnect::never;  // the same on all ranks
};

class ControlTcp final : public ControlWire {
 public:
  // The rank and the number of ranks that an observer names when it connects.
  static constexpr int observer = 0x7fffffff;

  explicit ControlTcp(const ControlTcpOptions& options) : options_(options) {}

  // Returns the address for the other ranks.
  Expected<std::string> listen(const std::string& host);
  // By rank. Must be called before send().
  void set_addresses(std::vector<std::string> addresses) { addresses_ = std::move(addresses); }

  void send(int to, std::string message) override;
  void probe(int rank) override;
  void hang_up(int rank) override;

  // Sends and receives what is possible without blocking, and calls `handler` for each event.
  void progress(ControlHandler& handler);
  // Says goodbye on all connections and sends what is queued, until the deadline.
  void close(std::uint64_t deadline_ns);
  Observers& observers() { return observers_; }
  // Readable when progress() has something to do.
  int descriptor() const { return events_.get(); }
  // Open or being opened.
  std::size_t connections() const {
    const std::lock_guard lock(mutex_);
    return links_.size() + unauthenticated_.size();
  }

 private:
  using Link = ControlLink;
  using State = ControlLink::State;
  // Calls to the handler, to be made without the lock.
  using News = std::vector<std::function<void(ControlHandler&)>>;

  void dial(int rank, std::string first);
  bool dial_again(Link& link);
  void tell_end(const Link& link, News& news);
  void look_at_links();
  bool has_room();
  void listen_while_room();
  void accept_connections();
  void establish(Link& link);
  void step(Link& link, News& news);
  void step_all(News& news);
  Link* connect_to(int rank, std::list<Link>& links);
  bool connected(Link& link);
  void shake(Link& link);
  void read(Link& link, News& news);
  void take_messages(Link& link, News& news);
  void ended(Link& link, int cause);
  void watch(Link& link, bool added);
  void adopt(std::list<Link>::iterator caller, News& news);
  void go_on(std::list<Link>::iterator caller, News& news);

  const ControlTcpOptions options_;
  std::vector<std::string> addresses_;
  Descriptor listener_;
  Descriptor events_;
  mutable std::mutex mutex_;
  std::list<Link> links_;            // to ranks
  std::list<Link> unauthenticated_;  // accepted, not authenticated yet
  std::list<Link> probes_;           // connect only, to see whether a rank is reachable
  Observers observers_;
  News late_;            // events noted outside of progress()
  int next_number_ = 0;  // of the links that this rank begins
  bool listens_ = true;  // whether the listener is watched
  std::uint64_t accepts_again_ns_ = 0;
  std::uint64_t next_look_ns_ = 0;
};

}  // namespace pith
