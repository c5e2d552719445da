// One vote of a compressed communicator's ranks on the calls of a group, and the program's vector
// that each of these calls sums.
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
  std::deque<const Sum*> users;  // compressed sums that still wait for the compressor, in order
  std::uint64_t agreement = 0;   // of its last call
  bool placed = false;           // its memory is allocated on the vector's side (host or device)

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
  // The ranks that Pith sums over, and the number of ranks that an average divides by.
  Communicator& communicator() const {
    return by_plan() ? *owner_.plan_->between() : *owner_.communicator_;
  }
  float ranks() const { return static_cast<float>(owner_.communicator_->size()); }

  Compression& owner_;
  Ballot& ballot_;
  std::optional<NcclCall> whole_;   // the whole call; empty: not by the plan
  NcclCall call_;                   // the part that Pith sums
  std::shared_ptr<Vector> vector_;  // null: unknown vector
  CompressedTensor tensor_;
  std::uint64_t agreement_ = 0;  // 0: dense
  bool holds_ = false;           // the vector's compressor, until take()
};

struct Compression::Ballot {
  bool has_ended() const { return here || running.done(); }
  // The votes hold each value and its negative, so one minimum also yields the maximum.
  std::int64_t least(std::size_t call) const { return votes[call]; }
  std::int64_t greatest(std::size_t call) const { return -votes[sums.size() + call]; }

  std::vector<std::int64_t> votes;
  std::deque<Sum> sums;
  std::array<bool, 2> enqueued{};  // a call was enqueued: here, on the plan's
  std::size_t left = 0;            // sums not yet taken
  bool here = false;               // the vote ran within the call that opened it
  bool decided = false;
  Error error;
  Background running;  // the vote; its destructor waits, so it is destroyed before the votes
};

}  // namespace pith::nccl
