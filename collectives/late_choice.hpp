// A sum on a stream for which it is still open whether a compressor makes it. Ranks find that out
// while the stream gets there, so that no caller waits for another rank.
#pragma once

#include <memory>
#include <vector>

#include "collectives/compressed.hpp"

namespace pith {

// Must live until take() has been called, or no call runs any more.
class LateChoice {
 public:
  // What a call turns out to be.
  struct Decision {
    // Of this sum, and of later ones of its group and stream that it makes in the same exchange.
    // None: the sum is dense, or made already.
    std::vector<CompressedTensor> tensors;
    std::vector<std::shared_ptr<Compressor>> compressors;  // theirs, claimed
    bool is_made = false;                                  // by an earlier call of its group
  };

  // The tensor for a compressor, and those of earlier sums of the group that may be in the same
  // exchange; empty: no compressor ever makes this sum. On the caller's thread.
  virtual std::vector<CompressedTensor> candidates() const = 0;
  // No call has used the first candidate's compressor, whose memory still has to be placed.
  virtual bool is_fresh() const = 0;
  // Whether the decision is known and the compressors are free. Called with the engine's token,
  // whenever something has moved there, until it returns true.
  virtual bool ready() = 0;
  // Called once, after ready().
  virtual Decision take() = 0;

 protected:
  ~LateChoice() = default;
};

}  // namespace pith
