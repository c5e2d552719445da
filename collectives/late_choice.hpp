// A sum on a stream of which nobody knows yet whether a compressor makes it: ranks still find out
// while the stream gets there, so that no caller waits for another rank.
#pragma once

#include <memory>

#include "collectives/compressed.hpp"

namespace pith {

// Whoever handles the choice keeps it until take() has been called, or no call runs any more.
class LateChoice {
 public:
  // What a compressor would be given; null: none ever makes this sum. The caller's thread.
  virtual const CompressedTensor* candidate() const = 0;
  // No call has had the candidate's compressor: its memory has yet to be found a place.
  virtual bool is_fresh() const = 0;
  // Whether all is known, and the compressor is free. With the engine's token: asked whenever
  // something has moved there, until it is so.
  virtual bool ready() = 0;
  // The candidate's compressor, claimed; null: the sum is dense. Once, after ready().
  virtual std::shared_ptr<Compressor> take() = 0;

 protected:
  ~LateChoice() = default;
};

}  // namespace pith
