#include "collectives/call_args.hpp"

#include "core/mix.hpp"

namespace pith {

std::uint64_t digest_of(const CollectiveArgs& args) {
  std::uint64_t hash = mix(0x70697468, static_cast<std::uint64_t>(args.collective));
  hash = mix(hash, args.count);
  hash = mix(hash, (static_cast<std::uint64_t>(args.type) << 8) | static_cast<unsigned>(args.op) |
                       (args.factor.used ? 0x80u : 0u));
  return mix(hash, static_cast<std::uint64_t>(args.root));
}

std::uint64_t digest_of(const CompressedArgs& args) {
  return mix(digest_of(CollectiveArgs()), digest_of_tensors(args.tensors));
}

}  // namespace pith
