// The operations that pithRedOpCreatePreMulSum has made for one communicator.
#pragma once

#include <map>

#include "collectives/algorithm.hpp"
#include "pith/pith.h"

namespace pith::api {

class ReductionOps {
 public:
  ReductionOps() = default;
  ~ReductionOps() { clear(); }
  ReductionOps(const ReductionOps&) = delete;
  ReductionOps& operator=(const ReductionOps&) = delete;

  // Handles are unique in the process, so that the use of another communicator's handle is
  // detected. The handle of a destroyed operation is reused only after all values of the type.
  pithRedOp_t add(DType type, const Factor& factor);
  // False if there is no operation with this handle.
  bool remove(pithRedOp_t op);

  void clear();

  struct PreMulSum {
    DType type;
    Factor factor;
  };
  const PreMulSum* find(pithRedOp_t op) const {
    const auto found = made_.find(static_cast<int>(op));
    return found == made_.end() ? nullptr : &found->second;
  }

 private:
  std::map<int, PreMulSum> made_;
};

}  // namespace pith::api
