// Which sums of which communicators the environment wants to have compressed, and how.
#pragma once

#include <cstddef>
#include <string>

#include "core/error.hpp"
#include "nccl/call.hpp"

namespace pith::nccl {

// PITH_COMPRESS and PITH_COMPRESS_COMM, read.
struct CompressionRules {
  std::string spec;      // of a compressor
  bool by_host = false;  // which has hierarchy=host
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

}  // namespace pith::nccl
