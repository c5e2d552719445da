// One rank's node in the control plane of its job: the plane, its wire, and the thread that turns
// them. Shared by all communicators derived from the rank's first one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "control/control_plane.hpp"
#include "control/control_thread.hpp"
#include "control/gatherer.hpp"
#include "control/observers/observers.hpp"
#include "settings/settings.hpp"
#include "transport/handshake.hpp"

namespace pith {

class ControlNode : public Controlled {
 public:
  // Leaves the job in order, unless leave_with_process() has.
  ~ControlNode() override = default;
  ControlNode(const ControlNode&) = delete;
  ControlNode& operator=(const ControlNode&) = delete;

  // Collective over the ranks of `gatherer`; this one listens at `host`.
  static Expected<std::shared_ptr<ControlNode>> over_tcp(Gatherer& gatherer, std::string host,
                                                         int rank, int ranks, const Secret& secret,
                                                         const Settings& settings);
  // One for each of `ranks` ranks of this process.
  static std::vector<std::shared_ptr<ControlNode>> among_threads(int ranks,
                                                                 const Settings& settings);

  // Called when their process ends: these ranks leave the job together, in order, within a second;
  // the others hear that the process has ended.
  static void leave_with_process(std::span<ControlNode* const> nodes) { leave(nodes, true); }

  ControlPlane& plane() { return plane_; }
  // Known to the ranks of this start alone, and not to one that an earlier start with the same
  // secret has left over.
  const Secret& secret() const { return secret_; }
  // How long a call may stand still; 0: for ever.
  double timeout_s() const { return timeout_s_; }
  // Where this rank listens.
  const std::string& host() const { return host_; }
  // Who watches this rank; null: nobody can.
  virtual Observers* observers() { return nullptr; }
  // Descriptors that connections of the tree will still take here.
  virtual std::size_t descriptors_to_come() const { return 0; }
  // As in ControlPlane, and wakes the thread.
  void revoke(CommKey comm, const Error& error, bool known = true);
  void suspect(CommKey comm, const CallNote& call);
  bool propose(CommKey comm, const std::string& blob);
  void gather(const GatherKey& key, ControlPlane::Need need, const std::vector<int>& participants,
              std::string blob, ControlPlane::Done done, CallNote call = {});
  // Blocks until the result is there, or this rank's part is cancelled. Not from a watcher.
  GatherResult gather(const GatherKey& key, ControlPlane::Need need,
                      const std::vector<int>& participants, std::string blob,
                      const Cancellation* cancellation = nullptr, CallNote call = {});

 protected:
  ControlNode(const ControlOptions& options, ControlWire& wire, const Secret& secret,
              std::string host)
      : plane_(options, wire),
        secret_(secret),
        host_(std::move(host)),
        timeout_s_(options.timeout_s) {}

  // For derived classes: call at the end of the constructor, and at the start of the destructor.
  void begin();
  void leave_alone();

  ControlPlane plane_;
  Secret secret_;
  const std::string host_;
  const double timeout_s_;

 private:
  static void leave(std::span<ControlNode* const> nodes, bool process_ends);
  // Closes the wire after sending what is queued.
  virtual void close() {}

  bool running_ = false;  // the control thread turns it
};

// Gathers over an existing control plane: the start-up of child communicators.
class ControlGatherer final : public Gatherer {
 public:
  // `members`: ranks of the job, by rank of the new communicator; `named`: the same ranks, by the
  // numbers that errors use, -1 where there is none.
  ControlGatherer(ControlNode& node, CommKey comm, std::vector<int> members, std::vector<int> named,
                  double timeout_s, std::shared_ptr<const Cancellation> cancellation);
  Expected<std::vector<std::string>> gather(const std::string& mine) override;
  Error failure() const override;
  std::vector<int> named() const override { return named_; }

 private:
  ControlNode& node_;
  const CommKey comm_;
  const std::vector<int> members_;  // ranks of the job
  const std::vector<int> named_;
  std::uint32_t round_ = 0;
};

}  // namespace pith
