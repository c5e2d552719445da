// A communicator of one rank: what its ranks have connected (links), its calls, its end, and what
// is made from it. Each is a class of its own; this one holds them. How it comes to be is in
// startup/connect.hpp.
//
// Threads: one thread at a time issues calls; abort() and error() may come from any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/background_calls.hpp"
#include "comm/bound_compressors.hpp"
#include "comm/call_runner.hpp"
#include "comm/child_communicators.hpp"
#include "comm/comm_identity.hpp"
#include "comm/control_events.hpp"
#include "comm/links.hpp"
#include "comm/revocation/revocation_state.hpp"

namespace pith {

class Streams;

class Communicator final : public std::enable_shared_from_this<Communicator> {
 public:
  // One that is not connected yet.
  Communicator(const Settings& settings, CommIdentity who,
               TransportTable table = transport_table());
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return who_.rank; }
  int size() const { return links_.size(); }
  const CommIdentity& identity() const { return who_; }
  Links& links() { return links_; }
  const Links& links() const { return links_; }
  Engine& engine() { return links_.engine(); }

  CallRunner& calls() { return runner_; }
  BackgroundCalls& background() { return background_; }
  Streams& streams() { return *streams_; }
  BoundCompressors& compressors() { return compressors_; }
  ChildCommunicators& children() { return children_; }
  const ChildCommunicators& children() const { return children_; }
  RevocationState& revocation() { return revocation_; }

  // The control plane tells it of its ranks from now on. `process_end`: so does this process's end.
  void join_control_plane(bool process_end);
  const std::string& trace_prefix() const { return trace_prefix_; }
  void set_trace_prefix(std::string prefix) { trace_prefix_ = std::move(prefix); }

  bool is_revoked() const { return revocation_.is_revoked(); }
  Error error() { return revocation_.error(); }
  // The same, or that a rank has died, for whoever asks while no call runs here: a death alone
  // revokes nothing.
  Error async_error();
  // Every running and later call ends with an error, here and at the other ranks.
  void abort() { revocation_.abort(); }
  // Waits until no call runs any more.
  void drain();
  // An abort that nobody else hears of, where no call runs or is enqueued, in a moment at the
  // latest, nor may be replayed; false: it must be a real one. No call begins afterwards.
  bool leave();
  // The process ends, and this rank leaves in order: no call begins any more, peers are told and
  // get what was sent, by the deadline. False where a call goes on running.
  bool leave_with_process(std::uint64_t deadline_ns);
  // What a rank that leaves waits for its peers at most.
  static constexpr std::uint64_t goodbye_ns = 1'000'000'000;

 private:
  bool ends_soon(std::uint64_t until_ns);
  void close(const Error& why, std::uint64_t deadline_ns);

  const CommIdentity who_;
  std::string trace_prefix_;
  Links links_;
  CallsUnderWay under_way_;
  CallRecorder recorder_;
  RevocationState revocation_;
  CallRunner runner_;
  BackgroundCalls background_;
  ControlEvents control_events_;
  BoundCompressors compressors_;
  ChildCommunicators children_;
  std::unique_ptr<Streams> streams_;
  bool closed_ = false;
};

// Drives all these engines until `done()`, taking turns with their other drivers.
void drive_engines(std::span<Engine* const> engines, const std::function<bool()>& done);

}  // namespace pith
