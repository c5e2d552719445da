// The operations that pithRedOpCreatePreMulSum made for one communicator.
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

  // No two operations of a process have one handle, so that one of another communicator is seen;
  // and none has that of one that was destroyed, until there have been as many as the type has.
  pithRedOp_t add(DType type, const Factor& factor);
  // False where there is none of that handle.
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
