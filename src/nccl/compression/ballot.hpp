// The calls of a compressed communicator on which its ranks vote at once, and what of the program
// each of them sums.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "api/compressor_handle.hpp"
#include "collectives/late_choice.hpp"
#include "comm/background.hpp"
#include "nccl/compression/compression.hpp"

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
      : owner_(owner), ballot_(ballot), call_(call) {
    if (!owner.plan_ || !owner.plan_->takes(call)) return;
    whole_ = call;
    call_ = owner.plan_->own_part(call);
  }
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
  bool by_plan() const { return whole_.has_value(); }
  // Whose ranks sum it, and of how many an average is.
  Communicator& communicator() const {
    return by_plan() ? *owner_.plan_->between() : *owner_.communicator_;
  }
  float ranks() const { return static_cast<float>(owner_.communicator_->size()); }

  Compression& owner_;
  Ballot& ballot_;
  std::optional<NcclCall> whole_;   // none: it is not by the plan
  NcclCall call_;                   // what Pith sums
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
  std::array<bool, 2> enqueued{};  // any of them, of this communicator's, and of the plan's
  std::size_t left = 0;            // sums that may still be asked for
  bool here = false;               // the vote has ended, in the call that opened it
  bool decided = false;
  Error error;
  Background running;  // the vote; waits for its end before the votes go
};

}  // namespace pith::nccl
