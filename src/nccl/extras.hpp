// What the environment asks of this process beyond NCCL: compression, and another NCCL to pass
// calls on to. Read once, by the first call that makes a communicator.
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

// Null: nothing, or nothing read yet; costs one load.
const Extras* extras();
// An error where a setting is wrong; then nothing is remembered, and the next call tells it again.
Error read_extras();

// A communicator made from an id, while it lives. Where no launcher tells how large the job is,
// these do: the largest one ever spans it, but not beside another one as large from another id.
class JobPart {
 public:
  // Empty id: unlike all others.
  JobPart(int ranks, std::string id);
  ~JobPart();
  JobPart(const JobPart&) = delete;
  JobPart& operator=(const JobPart&) = delete;

 private:
  const int ranks_;
  const std::string id_;
};

// Whether a communicator of so many ranks spans the job. Without a launcher it is a guess, which
// may turn out to have been wrong.
bool spans_job(int ranks);
bool job_size_is_guessed();

}  // namespace pith::nccl
