// Compression by environment: which sums of a communicator are compressed, and with which residual.
//
// All ranks must make a call alike, so they vote on each call that may be compressed, by one small
// all-reduce for all such calls of a group: each rank votes the period in which its send pointers
// repeat. A vote never depends on the result of an earlier one, so only the call itself waits for
// it: a call on a stream when the stream arrives, a blocking call at once. A rank that wants no
// compression votes 0, which disables compression of the communicator for good.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/comm_handle.hpp"
#include "collectives/late_choice.hpp"
#include "core/error.hpp"
#include "nccl/call.hpp"
#include "nccl/compression/compression_rules.hpp"
#include "nccl/compression/cycle_agreement.hpp"
#include "nccl/compression/pointer_cycle.hpp"
#include "nccl/fallback/host_plan.hpp"

namespace pith::nccl {

// State of one communicator. One thread at a time makes calls. Votes are evaluated and compressors
// assigned by any thread that asks, for calls on streams the engine's driver.
class Compression {
 public:
  // `who`: the communicator's name in the log. `plan`: how some of its sums are made, or null.
  Compression(const CompressionRules& rules, bool selected, std::string who,
              std::shared_ptr<Communicator> communicator, std::shared_ptr<HostPlan> plan);
  // Logs what is lost and frees the residuals. Precondition: no call is running.
  ~Compression();
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;

  // Whether the ranks have to vote on the call. Captured calls are excluded: each compressed call
  // is another step.
  bool covers(const NcclCall& call);
  // The communicator turns out not to be selected: the next vote tells the other ranks.
  void withdraw();

  // The calls of one group (or a single call) and the vote on them.
  struct Ballot;
  // Casts this rank's votes, in the order of the calls. The ballot lives until its sums are made.
  // `here`: runs the vote to its end on this thread.
  Expected<Ballot*> open(std::span<const NcclCall* const> calls, bool here);
  static std::size_t size_of(const Ballot& ballot);  // number of calls
  // Whether the vote has ended and the compressors are free; they are then claimed.
  bool is_ready(Ballot& ballot);
  // The vote's error, if it failed. Precondition, here and of add(): is_ready().
  Error error_of(const Ballot& ballot);
  // Adds the ballot's sum number `call` to the group.
  void add(Ballot& ballot, std::size_t call, Group& group);

  // Enqueues the sum on its stream before the vote is known. Those of a ballot form one group.
  Error enqueue(Ballot& ballot, std::size_t call);

 private:
  // A vector of the program and its residual.
  struct Vector;
  class Sum;

  void cast(const NcclCall& call, Ballot& ballot);
  std::shared_ptr<Vector> vector_of(std::uint32_t place, const Sum& sum);
  void clear_away();
  bool may_begin(std::size_t period);
  bool has_room(Sum& sum);
  // Precondition of these: the lock is held.
  bool is_decided(const Ballot& ballot);
  void decide(Ballot& ballot);
  bool has_compressor(Sum& sum);
  void switch_off(std::string why);
  // Keeps the reason why a sum was not compressed for say_not_begun().
  void object(std::string why);
  void object_to(const NcclCall& call);
  void say_begun();
  void say_not_begun();

  bool is_off();
  double residual_squares(pithCompressor_t compressor) const;
  void lose(pithCompressor_t compressor);
  void drop(std::span<const std::uint32_t> places);

  // Number of dense sums after which the log tells why: a run may be long.
  static constexpr int patience = 256;
  // Voting stops on all ranks this many ballots after one in which a rank wanted no compression.
  // Ranks wait for those further behind, so all know by then, and pending votes are bounded.
  static constexpr std::size_t most_under_way = 64;

  const CompressionRules& rules_;
  bool on_;
  const std::string who_;
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<HostPlan> plan_;

  // Used by the thread that makes calls.
  PointerCycle cycle_;
  std::map<std::uint32_t, std::shared_ptr<Vector>> vectors_;  // by place
  std::vector<std::shared_ptr<Vector>> dropped_;              // calls may still use them
  std::size_t opened_ = 0;                                    // ballots
  std::size_t cast_ = 0;                                      // calls
  double lost_squares_ = 0;
  int lost_vectors_ = 0;

  std::mutex mutex_;  // guards the rest, and the results of ballots
  std::deque<std::unique_ptr<Ballot>> ballots_;
  CycleAgreement agreement_;
  std::size_t decided_ = 0;  // calls
  std::size_t apart_ = 0;    // calls up to the last one without a common period
  std::string objection_;    // the first one
  int dense_sums_ = 0;
  bool has_said_ = false;  // has logged that it has begun, or why not
  std::size_t decided_ballots_ = 0;
  std::optional<std::size_t> refused_;  // the first ballot with a vote against compression
  bool broken_ = false;                 // a vote has failed: none is decided any more
};

}  // namespace pith::nccl
