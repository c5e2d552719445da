// Serves the ranks of one start-up: accepts their connections, gathers one blob from each and sends
// all blobs to every rank, for as many rounds as the ranks ask for.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "startup/blob.hpp"
#include "startup/unique_id.hpp"
#include "transport/accept_limiter.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"

namespace pith {

// One connection: first in its handshake, then joined as a rank.
struct BootstrapConnection {
  BootstrapConnection(Descriptor accepted, Handshake begun, std::uint64_t refuse_at)
      : fd(std::move(accepted)), handshake(std::move(begun)), deadline(refuse_at) {}

  // Both return false when the connection has ended.
  bool read();
  bool write();
  bool has_blob() const;
  // The reason of a rank that has given up, perhaps behind a blob that waits for its round; nothing
  // that the rank has sent counts any more.
  std::optional<std::string> take_failure();
  // Precondition: has_blob().
  std::string take_blob();
  void say(const std::string& text, BlobHeader::Kind kind);

  Descriptor fd;
  Handshake handshake;
  std::uint64_t deadline;
  bool authenticated = false;  // the next blob names its process
  bool joined = false;
  bool gone = false;
  int rank = -1;
  std::string in;
  // Shared between ranks: a gather's result goes to all of them, and a copy each would need memory
  // quadratic in the ranks.
  std::deque<std::shared_ptr<const std::string>> out;
  std::size_t out_done = 0;  // bytes of out.front() already sent
};

class BootstrapServer {
 public:
  // `before`: appended to the error when ranks do not join; says how the port was used earlier.
  BootstrapServer(Descriptor listener, UniqueId id, double timeout_s, std::string before = {});

  // `wake` is readable once `stop` is set.
  void serve(const std::atomic<bool>& stop, int wake);
  // What serve uses besides connections and its `wake`.
  struct Descriptors {
    Descriptor& listener;
    int told_here;
  };
  Descriptors descriptors() { return {listener_, told_here_.get()}; }
  // Closes all connections and the listener.
  void hang_up() {
    connections_.clear();
    listener_.reset();
  }
  // Ranks wait or may still come who must hear of a failure before this process ends. Any thread.
  bool owes_word() const { return owes_word_.load(std::memory_order_relaxed); }
  // A start that has failed closes its listener, as another start needs the port. Any thread.
  void give_port_back() { gives_back_.store(true, std::memory_order_relaxed); }
  // Fails the start for a cause in this process; waiting and late ranks are told. Any thread.
  void cannot_join(const std::string& why);
  bool serves(const UniqueId& id) const {
    return id.address == id_.address && id.secret == id_.secret;
  }

 private:
  using Connection = BootstrapConnection;

  bool may_accept();
  void accept_connections();
  void shake_hands(Connection& connection);
  void read_name(Connection& connection);
  void join(Connection& connection, const std::string& name);
  void leave(Connection& connection);
  void wait_for_news(int wake);
  void finish_rounds();
  void hear_failures();
  std::string take_own_failure();
  void note_debt(bool owes);
  void starve(const Error& error);
  void check_leavers();
  void check_absent();
  void fail_all(const std::string& why);
  void note_told(int rank);
  bool has_heard(int rank) const;
  bool all_have_heard() const;
  bool complete() const { return !ranks_.empty() && joined_ == ranks_.size(); }
  std::string missing() const;
  std::string refused() const;
  std::string used_up(int rank) const;

  Descriptor listener_;
  const Descriptor told_here_;  // an eventfd that ends the wait of serve for own_failure_
  UniqueId id_;
  const bool one_start_;  // serves a fixed port that the next start needs
  const double timeout_s_;
  const std::string before_;
  std::uint64_t give_up_at_ = 0;  // set by the first rank that joins
  std::uint64_t report_at_ = 0;   // likewise
  AcceptLimiter limiter_;
  std::list<Connection> connections_;
  std::vector<Connection*> ranks_;  // empty until the first rank says how many there are
  std::vector<std::string> names_;  // processes by rank; kept when a rank has left
  std::size_t joined_ = 0;
  std::string first_;  // the process that set the number of ranks
  int first_left_ = -1;
  struct {
    int calls = 0;
    std::string last;
  } refused_;               // attempts with a wrong secret
  std::string failure_;     // why the start failed; empty: it has not
  std::vector<bool> told_;  // by rank: has been sent failure_
  struct {
    std::mutex mutex;
    std::string why;
  } own_failure_;  // set by other threads of this process, taken by serve
  std::atomic<bool> owes_word_{false};
  std::atomic<bool> gives_back_{false};
};

}  // namespace pith
