// Compression by environment: which sums of a communicator are compressed, and with which residual.
//
// All ranks must make a call alike, so before each call that may be compressed they compare votes
// in one small all-reduce, of all such calls of a group at once. A rank that wants none votes 0,
// which switches the communicator off for good.
//
// A call on a stream is voted on by the thread that makes it, and enqueued then: it waits for the
// other ranks' threads, never for a stream, but for its own vector's last call.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "api/group.hpp"
#include "core/error.hpp"
#include "nccl/call.hpp"
#include "nccl/pointer_cycle.hpp"

namespace pith::nccl {

// PITH_COMPRESS and PITH_COMPRESS_COMM, read.
struct CompressionRules {
  std::string spec;  // of a compressor
  std::size_t bytes_min = std::size_t{1} << 20;
  unsigned types = 0;  // a bit each
  std::string comms;   // "world", or a shell pattern on names

  static Expected<CompressionRules> parse(const std::string& text, const std::string& comms);
  std::string describe() const;
  bool covers(const NcclCall& call) const;
  // Why an allreduce is not covered.
  std::string objection(const NcclCall& call) const;
  bool selects(const std::string& name, bool spans_job) const;
};

class Compression {
 public:
  // `who`: the communicator, as the log names it.
  Compression(const CompressionRules& rules, bool selected, std::string who);
  // Says what is lost, and frees the residuals.
  ~Compression();
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;

  // Whether ranks have to compare votes before the call. Not where it is captured: each compressed
  // call is another step.
  bool covers(const NcclCall& call);
  // The votes on the calls of one moment, and which vector each of them carries.
  struct Ballot {
    std::vector<std::int64_t> votes;
    std::vector<std::optional<std::uint32_t>> places;
    // Their negatives are added, so that one minimum over all ranks tells the greatest, too.
    void close();
    std::int64_t least(std::size_t call) const { return votes[call]; }
    std::int64_t greatest(std::size_t call) const { return -votes[places.size() + call]; }
  };
  // It is not selected after all: the next vote says so to the other ranks.
  void withdraw();
  // In the order of the calls.
  void vote(const NcclCall& call, Ballot& ballot);
  // Once the minimum is taken: places are left where the ranks agree.
  void settle(Ballot& ballot);
  // The votes could not be compared.
  void give_up();
  // To the group, compressed where there is a place.
  Error add(const NcclCall& call, std::optional<std::uint32_t> place,
            const std::shared_ptr<Communicator>& communicator, api::Group& group);

 private:
  // Why a sum was not compressed, kept for say_not_begun().
  void object(std::string why);
  void object_to(const NcclCall& call);
  void say_begun(std::size_t vectors);
  void say_not_begun();
  double residual_squares(pithCompressor_t compressor) const;
  void lose(pithCompressor_t compressor);
  void drop(std::span<const std::uint32_t> places);
  Expected<pithCompressor_t> compressor_of(std::uint32_t place);

  // Sums without compression after which the log tells why: a run may be long.
  static constexpr int patience = 256;

  const CompressionRules& rules_;
  bool on_;
  const std::string who_;
  std::string objection_;  // the first
  int dense_sums_ = 0;
  bool has_said_ = false;     // whether it has begun, or why not
  bool decided_off_ = false;  // by all ranks
  PointerCycle cycle_;
  std::map<std::uint32_t, pithCompressor_t> compressors_;  // by place
  double lost_squares_ = 0;
  int lost_vectors_ = 0;
};

}  // namespace pith::nccl
