// One rank's place at the control plane of its job: the plane, the wire below it, and the thread
// that turns them. Shared by all communicators that descend from the rank's first one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "control/control_plane.hpp"
#include "control/control_thread.hpp"
#include "control/gatherer.hpp"
#include "settings/settings.hpp"
#include "transport/handshake.hpp"

namespace pith {

class ControlNode : public Controlled {
 public:
  // Leaves the job in order, unless leave() has.
  ~ControlNode() override = default;
  ControlNode(const ControlNode&) = delete;
  ControlNode& operator=(const ControlNode&) = delete;

  // Collective over the ranks that `gatherer` joins; this one listens at `host`.
  static Expected<std::shared_ptr<ControlNode>> over_tcp(Gatherer& gatherer, std::string host,
                                                         int rank, int ranks, const Secret& secret,
                                                         const Settings& settings);
  // One for each of `ranks` ranks of this process.
  static std::vector<std::shared_ptr<ControlNode>> among_threads(int ranks,
                                                                 const Settings& settings);

  // At the end of their process these ranks leave the job together, in order, within a second;
  // the others hear that the process has ended.
  static void leave_with_process(std::span<ControlNode* const> nodes) { leave(nodes, true); }

  ControlPlane& plane() { return plane_; }
  const Secret& secret() const { return secret_; }
  // Where this rank listens.
  const std::string& host() const { return host_; }
  // Descriptors that the tree still takes here.
  virtual std::size_t descriptors_to_come() const { return 0; }
  // The same, and the thread looks at once.
  void revoke(CommKey comm, const Error& error, bool known = true);
  void suspect(CommKey comm, const CallNote& call);
  void gather(const GatherKey& key, ControlPlane::Need need, const std::vector<int>& participants,
              std::string blob, ControlPlane::Done done, CallNote call = {});
  // Waits for the result, or until this rank's part is cancelled. Not from a watcher.
  GatherResult gather(const GatherKey& key, ControlPlane::Need need,
                      const std::vector<int>& participants, std::string blob,
                      const Cancellation* cancellation = nullptr, CallNote call = {});

 protected:
  ControlNode(const ControlOptions& options, ControlWire& wire, const Secret& secret,
              std::string host)
      : plane_(options, wire), secret_(secret), host_(std::move(host)) {}

  // Of those that inherit: when they can be turned, and before they cannot any more.
  void begin();
  void leave_alone();

  ControlPlane plane_;
  const Secret secret_;
  const std::string host_;

 private:
  static void leave(std::span<ControlNode* const> nodes, bool process_ends);
  // Ends the wire, once what was said has left.
  virtual void close() {}

  bool running_ = false;  // the control thread turns it
};

// Start-up of a communicator whose ranks have a control plane already.
class ControlGatherer final : public Gatherer {
 public:
  // `members`: ranks of the job, by rank of the communicator that is made; `named`: the same ranks
  // by those numbers by which errors call them, -1 where there is none.
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
