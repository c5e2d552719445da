// Schemes without an election: all elements are sent, unchanged or with fewer bits.
#include "compress/scheme_keys.hpp"

namespace pith {

extern const Scheme bf16_scheme;

namespace {

constexpr std::array bf16_keys{keys::bypass};

}  // namespace

constinit const Scheme none_scheme{
    .name = "none", .summary = "the sum of everything, as float32", .exchange = "dense"};

const Scheme bf16_scheme{.name = "bf16",
                         .summary = "the sum of everything, in bfloat16",
                         .exchange = "bf16",
                         .keys = bf16_keys,
                         .values = DType::bf16};

}  // namespace pith
