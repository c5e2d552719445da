// What the environment requests beyond NCCL: compression, and another NCCL to which calls are
// passed. Read once, by the first call that creates a communicator.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "nccl/compression/compression.hpp"
#include "nccl/fallback/fallback.hpp"

namespace pith::nccl {

struct Extras {
  std::optional<CompressionRules> compression;
  std::unique_ptr<Fallback> fallback;
};

// Null: nothing requested, or not read yet. Costs one load.
const Extras* extras();
// An error if a setting is invalid; it is then read again by the next call.
Error read_extras();

// Registers a communicator made from an id while it lives. Without a launcher the job's size is
// derived from these: the largest one spans the job, unless another of the same size has another
// id.
class JobPart {
 public:
  // Empty id: distinct from all others.
  JobPart(int ranks, std::string id);
  ~JobPart();
  JobPart(const JobPart&) = delete;
  JobPart& operator=(const JobPart&) = delete;

 private:
  const int ranks_;
  const std::string id_;
};

// Whether a communicator of this many ranks spans the job. Without a launcher this is a guess,
// which later communicators may disprove.
bool spans_job(int ranks);
bool job_size_is_guessed();

}  // namespace pith::nccl
