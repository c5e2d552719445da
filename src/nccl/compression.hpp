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
  // Says what was lost, and frees the residuals.
  ~Compression();
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;

  // Whether ranks have to compare votes before the call.
  bool covers(const NcclCall& call) const { return !decided_off_ && rules_.covers(call); }
  // In the order of the calls; then settle() with the least and the greatest vote of all ranks for
  // each of them.
  std::int64_t vote(const NcclCall& call);
  void settle(std::span<const std::int64_t> least, std::span<const std::int64_t> greatest);
  // In the same order, once settled.
  pithResult_t issue(const NcclCall& call);

 private:
  void drop(std::span<const std::uint32_t> places);
  Expected<pithCompressor_t> compressor_of(std::uint32_t place);

  const CompressionRules& rules_;
  const bool on_;
  bool decided_off_ = false;  // by all ranks
  PointerCycle cycle_;
  std::vector<std::optional<std::uint32_t>> places_;       // of calls that were voted on
  std::size_t issued_ = 0;                                 // of them
  std::map<std::uint32_t, pithCompressor_t> compressors_;  // by place
  double lost_squares_ = 0;
  int lost_vectors_ = 0;
};

}  // namespace pith::nccl
