// The sum of a parcel in two halves of messages whose length depends on the values.
#pragma once

#include "collectives/varying/varying_parcel.hpp"

namespace pith {

// Each rank adds up its segment in rank order in float32: its own values as they are, those of the
// others as they are decoded. Then parcel.sums have the sums as all ranks decode them. Where what
// coding loses is kept, parcel.change() has what accumulators change by.
//
// `step` names the parcel's messages. `flags`: of VaryingHead, this rank's before, all ranks'
// after. Cost: 2 alpha + 2 (P-1)/P m beta, m bytes of coded values; see varying_cost.hpp.
Task<Error> sum_varying(Call& call, const VaryingParcel& parcel, std::uint32_t step,
                        std::uint32_t& flags);

}  // namespace pith
