// What the environment asks of this process beyond NCCL: compression, and another NCCL to pass
// calls on to. Read once, by the first call that makes a communicator.
#pragma once

#include <optional>

#include "core/error.hpp"
#include "nccl/compression.hpp"
#include "nccl/fallback.hpp"

namespace pith::nccl {

struct Extras {
  std::optional<CompressionRules> compression;
  std::unique_ptr<Fallback> fallback;
};

// Null: nothing, or nothing read yet; costs one load.
const Extras* extras();
// An error where a setting is wrong; then nothing is remembered, and the next call tells it again.
Error read_extras();

// Communicators made from an id tell how large the job is, where no launcher does.
void note_job_size(int ranks);
// Whether a communicator of so many ranks spans the job.
bool spans_job(int ranks);

}  // namespace pith::nccl
