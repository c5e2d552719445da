// Compression by environment: which sums of a communicator are compressed, and with which residual.
//
// All ranks must make a call alike, so they vote on each that may be compressed, by one small
// all-reduce for all such calls of a group at once: each rank says in which period its own send
// pointers repeat. A vote says nothing that an earlier one has yet to tell, so nobody waits for its
// end but the call itself: one on a stream goes on to wait there, a blocking one does so anyway. A
// rank that wants no compression votes 0, which switches the communicator off for good.
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

// Of one communicator. One thread at a time makes calls; what of them is decided, and when they get
// their compressors, is found out by whoever asks, which is the engine's driver for those on
// streams.
class Compression {
 public:
  // `who`: the communicator, as the log names it. `plan`: null, or how some of its sums are made.
  Compression(const CompressionRules& rules, bool selected, std::string who,
              std::shared_ptr<Communicator> communicator, std::shared_ptr<HostPlan> plan);
  // Says what is lost, and frees the residuals. No call runs any more.
  ~Compression();
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;

  // Whether ranks have to vote on the call. Not where it is captured: each compressed call is
  // another step.
  bool covers(const NcclCall& call);
  // It is not selected after all: the next vote says so to the other ranks.
  void withdraw();

  // The calls of one moment, and the vote on them.
  struct Ballot;
  // Casts this rank's votes, in the order of the calls. The ballot stays until its sums are made.
  // `here`: returns when the vote has ended, driven by this thread.
  Expected<Ballot*> open(std::span<const NcclCall* const> calls, bool here);
  static std::size_t size_of(const Ballot& ballot);  // in calls
  // Whether it is known what the sums are, and their compressors are free: they are claimed.
  bool is_ready(Ballot& ballot);
  // Where the votes could not be compared. Precondition, here and of add(): is_ready().
  Error error_of(const Ballot& ballot);
  // The ballot's sum number `call` to the group.
  void add(Ballot& ballot, std::size_t call, Group& group);

  // Onto its stream, whatever is known yet. Those of a ballot are one group.
  Error enqueue(Ballot& ballot, std::size_t call);

 private:
  // Of the program, with its residual.
  struct Vector;
  class Sum;

  void cast(const NcclCall& call, Ballot& ballot);
  std::shared_ptr<Vector> vector_of(std::uint32_t place, const Sum& sum);
  void clear_away();
  bool may_begin(std::size_t period);
  bool has_room(Sum& sum);
  // With the lock.
  bool is_decided(const Ballot& ballot);
  void decide(Ballot& ballot);
  bool has_compressor(Sum& sum);
  void switch_off(std::string why);
  // Why a sum was not compressed, kept for say_not_begun().
  void object(std::string why);
  void object_to(const NcclCall& call);
  void say_begun();
  void say_not_begun();

  bool is_off();
  double residual_squares(pithCompressor_t compressor) const;
  void lose(pithCompressor_t compressor);
  void drop(std::span<const std::uint32_t> places);

  // Sums without compression after which the log tells why: a run may be long.
  static constexpr int patience = 256;
  // So many ballots after one in which a rank wanted no compression all cease to vote: by then they
  // know. So a rank waits for those that are further behind, and votes under way are bounded.
  static constexpr std::size_t most_under_way = 64;

  const CompressionRules& rules_;
  bool on_;
  const std::string who_;
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<HostPlan> plan_;

  // The thread's that makes calls.
  PointerCycle cycle_;
  std::map<std::uint32_t, std::shared_ptr<Vector>> vectors_;  // by place
  std::vector<std::shared_ptr<Vector>> dropped_;              // that calls may still use
  std::size_t opened_ = 0;                                    // ballots
  std::size_t cast_ = 0;                                      // calls
  double lost_squares_ = 0;
  int lost_vectors_ = 0;

  std::mutex mutex_;  // guards the rest, and what it says of it
  std::deque<std::unique_ptr<Ballot>> ballots_;
  CycleAgreement agreement_;
  std::size_t decided_ = 0;  // calls
  std::size_t apart_ = 0;    // up to the last of which ranks saw no common period
  std::string objection_;    // the first
  int dense_sums_ = 0;
  bool has_said_ = false;  // whether it has begun, or why not
  std::size_t decided_ballots_ = 0;
  std::optional<std::size_t> refused_;  // the first ballot in which a rank wanted none
  bool broken_ = false;                 // no vote ends any more
};

}  // namespace pith::nccl
