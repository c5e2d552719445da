// When the ranks of a communicator compress: from the call on with which all of them have seen
// their send pointers repeat in one period for two periods, until one of them does not.
//
// Fed with what the ranks' votes have in common, call by call, so all ranks come to the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith::nccl {

class CycleAgreement {
 public:
  // `period`: what all ranks see with this call; 0: none, or not the same. The agreement's number
  // if the call is compressed, else 0. Of one agreement all calls had the same period, so that on
  // each rank a place stands for one vector all the time, and was called as often as on the others.
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
  std::size_t run_ = 0;  // calls in a row with that
  std::uint64_t number_ = 0;
};

}  // namespace pith::nccl
