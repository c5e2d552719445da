// The calls of a compressed communicator on which its ranks vote at once, and what of the program
// each of them sums.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "api/background.hpp"
#include "api/compressor_handle.hpp"
#include "collectives/late_choice.hpp"
#include "nccl/compression.hpp"

namespace pith::nccl {

struct Compression::Vector {
  pithCompressor_t compressor = nullptr;
  std::deque<const Sum*> users;  // compressed, in order; those that have not had it yet
  std::uint64_t agreement = 0;   // of its last call
  bool placed = false;           // its memory lies where the vector does

  Compressor& state() const { return *compressor->state; }
};

class Compression::Sum final : public LateChoice {
 public:
  Sum(Compression& owner, Ballot& ballot, const NcclCall& call)
      : owner_(owner), ballot_(ballot), call_(call) {}
  ~Sum() {
    if (holds_) vector_->state().release();
  }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;

  const CompressedTensor* candidate() const override { return vector_ ? &tensor_ : nullptr; }
  bool is_fresh() const override { return !vector_->placed; }
  bool ready() override;
  std::shared_ptr<Compressor> take() override;

 private:
  friend class Compression;
  void become(std::shared_ptr<Vector> vector);
  CollectiveArgs dense() const;

  Compression& owner_;
  Ballot& ballot_;
  const NcclCall call_;
  std::shared_ptr<Vector> vector_;  // null: not known
  CompressedTensor tensor_;
  std::uint64_t agreement_ = 0;  // 0: dense
  bool holds_ = false;           // the vector's compressor, until it is taken
};

struct Compression::Ballot {
  bool has_ended() const { return here || running.done(); }
  // One minimum over all ranks tells the greatest, too.
  std::int64_t least(std::size_t call) const { return votes[call]; }
  std::int64_t greatest(std::size_t call) const { return -votes[sums.size() + call]; }

  std::vector<std::int64_t> votes;
  std::deque<Sum> sums;
  std::size_t left = 0;  // sums that may still be asked for
  bool here = false;     // the vote has ended, in the call that opened it
  bool decided = false;
  Error error;
  api::Background running;  // the vote; waits for its end before the votes go
};

}  // namespace pith::nccl
