// What serves the ranks of one start-up: it accepts their connections, gathers one blob from each
// and sends all of them to everybody, as often as the ranks ask.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "startup/blob.hpp"
#include "startup/unique_id.hpp"
#include "transport/accept_limiter.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"

namespace pith {

// One connection: first in its handshake, then a rank's.
struct BootstrapConnection {
  BootstrapConnection(Descriptor accepted, Handshake begun, std::uint64_t refuse_at)
      : fd(std::move(accepted)), handshake(std::move(begun)), deadline(refuse_at) {}

  // False: it has ended.
  bool read();
  bool write();
  bool has_blob() const;
  BlobHeader::Kind kind() const;
  // Precondition: there is one.
  std::string take_blob();
  void say(const std::string& text, BlobHeader::Kind kind);

  Descriptor fd;
  Handshake handshake;
  std::uint64_t deadline;
  bool authenticated = false;  // it says next who it is
  bool joined = false;
  bool gone = false;
  int rank = -1;
  std::string in;
  // What all ranks get is there once: it grows with their square.
  std::deque<std::shared_ptr<const std::string>> out;
  std::size_t out_done = 0;  // of the first
};

class BootstrapServer {
 public:
  // `before`: what is told of the port where ranks do not come.
  BootstrapServer(Descriptor listener, UniqueId id, double timeout_s, std::string before = {})
      : listener_(std::move(listener)),
        id_(std::move(id)),
        one_start_(id_.known_before),
        timeout_s_(timeout_s),
        before_(std::move(before)) {}

  // `wake` is readable once `stop` is set.
  void serve(const std::atomic<bool>& stop, int wake);
  // Nobody is served any more.
  void hang_up() {
    connections_.clear();
    listener_.reset();
  }
  // Ranks wait or may come, and the start has failed or does so if this process ends. Any thread.
  bool owes_word() const { return owes_word_.load(std::memory_order_relaxed); }
  // A start that has failed lets go of its port, which another one needs. Any thread.
  void give_port_back() { gives_back_.store(true, std::memory_order_relaxed); }
  // For a cause of this process, which whoever waits or comes is told. Any thread.
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
  UniqueId id_;
  const bool one_start_;  // its port is needed again
  const double timeout_s_;
  const std::string before_;
  std::uint64_t give_up_at_ = 0;  // set by the first rank that joins
  std::uint64_t report_at_ = 0;   // too
  AcceptLimiter limiter_;
  std::list<Connection> connections_;
  std::vector<Connection*> ranks_;  // empty until the first rank says how many there are
  std::vector<std::string> names_;  // of their processes, also when they have gone
  std::size_t joined_ = 0;
  std::string first_;  // who said how many ranks there are
  int first_left_ = -1;
  struct {
    int calls = 0;
    std::string last;
  } refused_;               // who held another secret
  std::string failure_;     // why nobody can start any more; empty: they can
  std::vector<bool> told_;  // ranks that have heard so
  struct {
    std::mutex mutex;
    std::string why;
  } own_failure_;  // of this process, until the loop hears of it
  std::atomic<bool> owes_word_{false};
  std::atomic<bool> gives_back_{false};
};

}  // namespace pith
