// Orders the eager calls on streams of one communicator: they begin as they were enqueued, which is
// the same order on all ranks. A call that its stream has reached is held back until the calls
// before it have ended here, so it finds their results, whatever their streams, without an event.
//
// Calls of one group share a turn: all wait for the calls before the group, none for another call
// of it (their streams are joined before and after: cuda/stream_join.hpp), and calls after the
// group wait for all of them. Calls on one stream do not hold each other back, since the stream has
// passed the earlier ones. Once the communicator is revoked there is no order: every call is to
// end.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "collectives/call_args.hpp"
#include "core/operation.hpp"
#include "core/pollable.hpp"

namespace pith {

class StreamOrder final : public Pollable {
 public:
  struct Entry {
    std::uint32_t number = 0;
    const CallArgs* args = nullptr;  // for the log

   private:
    friend class StreamOrder;
    enum class State : unsigned char { unreached, held, begun };
    Entry* before_ = nullptr;
    Entry* after_ = nullptr;
    std::uint64_t turn_ = 0;
    const void* stream_ = nullptr;
    std::uint64_t held_ns_ = 0;  // when it was held back
    State state_ = State::unreached;
  };

  // `begin`: called for each call that was held back. `warn_s`: seconds after which one is logged.
  StreamOrder(const CommState& state, int rank, double warn_s, void (*begin)(Entry& entry));

  // Calling thread. `grouped`: the next call shares the turn of the one before it.
  void take_turn(bool grouped) { turn_ += grouped ? 0 : 1; }
  // `stream`: identifies the stream. The entry keeps its address until it is removed.
  void add(Entry& entry, const void* stream);

  // Driver of the engine, here and below. The stream has reached the call; returns whether it may
  // begin now.
  bool reach(Entry& entry);
  // The call has ended or is dropped.
  void remove(Entry& entry);
  bool begin_held();

  bool progress() override;
  bool busy() const override { return !held_.empty(); }
  int descriptor() const override { return -1; }
  bool arm() override;
  void disarm() override {}

 private:
  bool may_begin(const Entry& entry);
  void look_for_stall(std::uint64_t now_ns);
  const Entry* awaited_by(const Entry& held);

  const CommState& state_;
  const int rank_;
  const std::uint64_t warn_ns_;
  void (*const begin_)(Entry& entry);
  std::uint64_t turn_ = 0;  // used by the calling thread
  std::mutex mutex_;        // guards the list
  Entry* first_ = nullptr;
  Entry* last_ = nullptr;
  std::vector<Entry*> held_;
  bool beginning_ = false;
  bool told_ = false;  // the first held call was logged
  std::uint32_t polls_ = 0;
};

}  // namespace pith
