// The operations that pithRedOpCreatePreMulSum made for one communicator.
#pragma once

#include <map>

#include "collectives/algorithm.hpp"
#include "pith/pith.h"

namespace pith::api {

class ReductionOps {
 public:
  // No handle is given twice in a process, so that one of another communicator is seen.
  pithRedOp_t add(DType type, const Factor& factor);
  // False where there is none of that handle.
  bool remove(pithRedOp_t op) { return made_.erase(static_cast<int>(op)) != 0; }

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
