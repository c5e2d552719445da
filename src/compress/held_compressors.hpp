// The compressors that a call on a stream holds: they stay claimed and alive until it releases
// them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "compress/compressor.hpp"

namespace pith {

class HeldCompressors {
 public:
  HeldCompressors() = default;
  // Precondition: all of them are claimed.
  explicit HeldCompressors(std::vector<std::shared_ptr<Compressor>> claimed)
      : claimed_(std::move(claimed)) {}
  HeldCompressors(HeldCompressors&& other) noexcept : claimed_(std::exchange(other.claimed_, {})) {}
  HeldCompressors& operator=(HeldCompressors&& other) noexcept {
    std::swap(claimed_, other.claimed_);
    return *this;
  }
  ~HeldCompressors() { let_go(); }

  const std::vector<std::shared_ptr<Compressor>>& all() const { return claimed_; }

  void let_go() {
    for (const std::shared_ptr<Compressor>& compressor : claimed_) compressor->release();
    claimed_.clear();
  }

 private:
  std::vector<std::shared_ptr<Compressor>> claimed_;
};

}  // namespace pith
