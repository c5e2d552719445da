#include "collectives/call_args.hpp"

#include "core/mix.hpp"

namespace pith {

namespace {

// So that a rank that has died with other parameters is noticed by its messages. Mostly 0.
std::uint64_t with_epoch(std::uint64_t digest, const Tuning& tuning) {
  return tuning.epoch == 0 ? digest : mix(digest, tuning.epoch);
}

}  // namespace

// Ranks of an alltoall know only their own blocks.
std::uint64_t digest_of_blocks(const CollectiveArgs& args) {
  std::uint64_t hash = 1;
  if (args.collective == Collective::alltoall) return hash;
  const Range* const blocks = args.uneven.common();
  for (std::size_t r = 0; r < args.uneven.ranks; ++r) hash = mix(hash, blocks[r].size);
  return hash;
}

std::uint64_t digest_of(const CollectiveArgs& args) {
  std::uint64_t hash = mix(0x70697468, static_cast<std::uint64_t>(args.collective));
  hash = mix(hash, args.count);
  hash = mix(hash, (static_cast<std::uint64_t>(args.type) << 8) | static_cast<unsigned>(args.op) |
                       (args.factor.used ? 0x80u : 0u));
  if (args.wire.is_used()) hash = mix(hash, args.wire.digest());
  if (args.uneven.used()) hash = mix(hash, digest_of_blocks(args));
  return with_epoch(mix(hash, static_cast<std::uint64_t>(args.root)), args.tuning);
}

std::uint64_t digest_of(const CompressedArgs& args) {
  const std::uint64_t digest = mix(digest_of(CollectiveArgs()), digest_of_tensors(args.tensors));
  return with_epoch(digest, args.tuning);
}

}  // namespace pith
