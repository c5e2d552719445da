// One rank's side of a communicator: its links to the other ranks, its calls, its end, and the
// communicators made from it. Each part is a class of its own, held by this one.
// startup/connect.hpp connects it.
//
// Threads: one thread at a time issues calls; abort() and error() may be called by any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/background_calls.hpp"
#include "comm/bound_compressors.hpp"
#include "comm/call_runner.hpp"
#include "comm/children/child_communicators.hpp"
#include "comm/comm_identity.hpp"
#include "comm/control_events.hpp"
#include "comm/links.hpp"
#include "comm/revocation/revocation_state.hpp"

namespace pith {

class Streams;

// Begins of the paths of files that tell of a communicator; empty: no such file.
struct RecordPaths {
  std::string trace;
  std::string choices;
  std::string links;  // of the job's communicator only
};

class Communicator final : public std::enable_shared_from_this<Communicator> {
 public:
  // Makes a communicator that is not connected yet.
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
  const CallRunner& calls() const { return runner_; }
  BackgroundCalls& background() { return background_; }
  Streams& streams() { return *streams_; }
  BoundCompressors& compressors() { return compressors_; }
  ChildCommunicators& children() { return children_; }
  const ChildCommunicators& children() const { return children_; }
  RevocationState& revocation() { return revocation_; }

  // Registers with the control plane, which reports events of its ranks from now on. `process_end`:
  // the communicator also leaves in order when this process ends.
  void join_control_plane(bool process_end);
  const RecordPaths& record_paths() const { return record_paths_; }
  void set_record_paths(RecordPaths paths) { record_paths_ = std::move(paths); }

  bool is_revoked() const { return revocation_.is_revoked(); }
  Error error() { return revocation_.error(); }
  // error(), or the first death if no call runs here: a death alone revokes nothing.
  Error async_error();
  // Ends every running and later call with an error, on this rank and all others.
  void abort() { revocation_.abort(); }
  // Waits until no call runs.
  void drain();
  // Ends the communicator here without telling the other ranks; no call begins afterwards. Returns
  // false if a call still runs or is enqueued after a moment, or may be replayed: then abort() is
  // needed.
  bool leave();
  // The process ends, and this rank leaves in order: no call begins any more, and peers are told
  // and receive what was sent, by the deadline. Returns false if a call is still running.
  bool leave_with_process(std::uint64_t deadline_ns);
  // The longest time that a leaving rank waits for its peers.
  static constexpr std::uint64_t goodbye_ns = 1'000'000'000;

 private:
  bool ends_soon(std::uint64_t until_ns);
  void close(const Error& why, std::uint64_t deadline_ns);

  const CommIdentity who_;
  RecordPaths record_paths_;
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

// Drives the engines until `done()`, in turn with the other threads that drive them.
void drive_engines(std::span<Engine* const> engines, const std::function<bool()>& done);

}  // namespace pith
