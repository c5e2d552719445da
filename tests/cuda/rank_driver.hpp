// What ranks in processes or threads of their own ask of a driver, the stub's or a real one: each
// process loads it for itself, after it was forked.
#pragma once

#include <string>

#include "cuda/driver_api.hpp"
#include "tests/api/ranks.hpp"

namespace pith::cuda::rank_driver {

inline const Driver& cu() {
  static const Driver driver = [] {
    Driver loaded;
    std::string why;
    ranks::ensure(load_driver(loaded, why), why);
    return loaded;
  }();
  return driver;
}

inline void good(CUresult result, ranks::Where where = ranks::Where::current()) {
  ranks::ensure(result == kSuccess, cu().describe(result), where);
}

inline CUcontext make_current(int device) {
  CUcontext context = nullptr;
  good(cu().init(0));
  good(cu().primary_ctx_retain(&context, device));
  good(cu().ctx_set_current(context));
  return context;
}

}  // namespace pith::cuda::rank_driver
