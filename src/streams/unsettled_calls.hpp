// Failed calls on streams whose memory peers may still touch. Their streams go on when all peers
// are done with it, or after a limit (comm/revocation/settling.hpp). Driver of the engine, unless a
// function says otherwise.
#pragma once

#include <atomic>
#include <vector>

#include "comm/revocation/settling.hpp"
#include "core/pollable.hpp"
#include "streams/stream_call.hpp"

namespace pith {

class UnsettledCalls final : public Pollable {
 public:
  // `open`: lets a call's stream go on.
  UnsettledCalls(Settling& settling, void (*open)(StreamCall& call))
      : settling_(settling), open_(open) {}

  void add(StreamCall& call);
  void open_all();
  // Any thread.
  bool any() const { return count_.load(std::memory_order_acquire) > 0; }

  bool progress() override;
  bool busy() const override { return any(); }
  int descriptor() const override { return -1; }
  bool arm() override;
  void disarm() override {}

 private:
  Settling& settling_;
  void (*const open_)(StreamCall& call);
  std::vector<StreamCall*> calls_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace pith
