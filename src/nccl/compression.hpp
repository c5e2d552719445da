// Compression by environment: which sums of a communicator are compressed, and with which residual.
//
// All ranks must make a call alike, so before each call that may be compressed they compare votes
// in one small all-reduce, of all such calls of a group at once. A rank that wants none votes 0,
// which switches the communicator off for good.
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
  bool selects(const std::string& name, bool spans_job) const;
};

class Compression {
 public:
  Compression(const CompressionRules& rules, bool selected) : rules_(rules), on_(selected) {}
  // Says what is lost, and frees the residuals.
  ~Compression();
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;

  // Whether ranks have to compare votes before the call. Not of memory that only a device reaches.
  bool covers(const NcclCall& call) const;
  // The votes on the calls of one moment, and which vector each of them carries.
  struct Ballot {
    std::vector<std::int64_t> votes;
    std::vector<std::optional<std::uint32_t>> places;
    // Their negatives are added, so that one minimum over all ranks tells the greatest, too.
    void close();
    std::int64_t least(std::size_t call) const { return votes[call]; }
    std::int64_t greatest(std::size_t call) const { return -votes[places.size() + call]; }
  };
  // In the order of the calls.
  void vote(const NcclCall& call, Ballot& ballot);
  // Once the minimum is taken: places are left where the ranks agree.
  void settle(Ballot& ballot);
  // The votes could not be compared.
  void give_up() { decided_off_ = true; }
  // To the group, compressed where there is a place.
  Error add(const NcclCall& call, std::optional<std::uint32_t> place,
            const std::shared_ptr<Communicator>& communicator, api::Group& group);

 private:
  double residual_squares(pithCompressor_t compressor) const;
  void drop(std::span<const std::uint32_t> places);
  Expected<pithCompressor_t> compressor_of(std::uint32_t place);

  const CompressionRules& rules_;
  const bool on_;
  bool decided_off_ = false;  // by all ranks
  PointerCycle cycle_;
  std::map<std::uint32_t, pithCompressor_t> compressors_;  // by place
  double lost_squares_ = 0;
  int lost_vectors_ = 0;
};

}  // namespace pith::nccl
