// Which sums of which communicators the environment wants compressed, and how.
#pragma once

#include <cstddef>
#include <string>

#include "core/error.hpp"
#include "nccl/call.hpp"

namespace pith::nccl {

// PITH_COMPRESS and PITH_COMPRESS_COMM, parsed.
struct CompressionRules {
  std::string spec;      // the compressor's
  bool by_host = false;  // the spec has hierarchy=host
  std::size_t bytes_min = std::size_t{1} << 20;
  unsigned types = 0;  // one bit per type
  std::string comms;   // "world", or a shell pattern for names

  static Expected<CompressionRules> parse(const std::string& text, const std::string& comms);
  std::string describe() const;
  bool covers(const NcclCall& call) const;
  // Why an all-reduce is not covered.
  std::string objection(const NcclCall& call) const;
  bool selects(const std::string& name, bool spans_job) const;
};

}  // namespace pith::nccl
