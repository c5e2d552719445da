#include "api/reduction_ops.hpp"

#include <mutex>
#include <set>

#include "core/per_process.hpp"

namespace pith::api {

namespace {

// The handles in use by all communicators of the process.
class Handles {
 public:
  int take() {
    const std::lock_guard lock(mutex_);
    while (!taken_.insert(next_).second) advance();
    const int taken = next_;
    advance();
    return taken;
  }
  void give_back(int op) {
    const std::lock_guard lock(mutex_);
    taken_.erase(op);
  }

 private:
  void advance() { next_ = next_ == pithMaxRedOp ? int{op_count} : next_ + 1; }

  std::mutex mutex_;
  std::set<int> taken_;
  int next_ = op_count;
};

Handles& handles() { return PerProcess<Handles>::get(); }

}  // namespace

void ReductionOps::clear() {
  for (const auto& [op, made] : made_) handles().give_back(op);
  made_.clear();
}

pithRedOp_t ReductionOps::add(DType type, const Factor& factor) {
  const int op = handles().take();
  made_.emplace(op, PreMulSum{type, factor});
  return static_cast<pithRedOp_t>(op);
}

bool ReductionOps::remove(pithRedOp_t op) {
  const bool found = made_.erase(static_cast<int>(op)) != 0;
  if (found) handles().give_back(static_cast<int>(op));
  return found;
}

}  // namespace pith::api
