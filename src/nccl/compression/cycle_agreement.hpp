// When the ranks of a communicator compress: once all of them have seen their send pointers repeat
// with one period for two periods, until one of them does not.
//
// Computed call by call from the common result of the votes, so all ranks get the same answer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith::nccl {

class CycleAgreement {
 public:
  // `period`: what all ranks see with this call; 0: none, or different ones. Returns the
  // agreement's number if the call is compressed, else 0. All calls of an agreement have the same
  // period, so a place is the same vector throughout and was called equally often on all ranks.
  std::uint64_t next(std::size_t period) {
    if (period != period_) {
      run_ = 0;
      ++number_;
    }
    period_ = period;
    ++run_;
    return period != 0 && run_ >= 2 * period ? number_ : 0;
  }
  std::size_t period() const { return period_; }

 private:
  std::size_t period_ = 0;
  std::size_t run_ = 0;  // consecutive calls with that period
  std::uint64_t number_ = 0;
};

}  // namespace pith::nccl
