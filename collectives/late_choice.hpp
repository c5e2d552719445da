// A sum on a stream for which it is still open whether a compressor makes it. Ranks find that out
// while the stream gets there, so that no caller waits for another rank.
#pragma once

#include <memory>

#include "collectives/compressed.hpp"

namespace pith {

// Must live until take() has been called, or no call runs any more.
class LateChoice {
 public:
  // The tensor for a compressor; null: no compressor ever makes this sum. On the caller's thread.
  virtual const CompressedTensor* candidate() const = 0;
  // No call has used the candidate's compressor, whose memory still has to be placed.
  virtual bool is_fresh() const = 0;
  // Whether the decision is known and the compressor is free. Called with the engine's token,
  // whenever something has moved there, until it returns true.
  virtual bool ready() = 0;
  // The candidate's compressor, claimed; null: the sum is dense. Called once, after ready().
  virtual std::shared_ptr<Compressor> take() = 0;

 protected:
  ~LateChoice() = default;
};

}  // namespace pith
