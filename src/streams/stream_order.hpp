// In which order the eager calls on streams of one communicator begin: that in which they were
// enqueued, which is the same on all ranks. A call that its stream has reached is held back until
// those before it have ended here, so that it finds their results whatever their streams, without
// an event.
//
// Calls of one group take one turn: all of them wait for what came before the group, none for
// another one of it (their streams are joined before and behind: cuda/stream_join.hpp), and what
// comes behind the group waits for all of them. Calls on one stream are not held back for each
// other: their stream has passed the ones before.
// No order holds once the communicator is revoked: every call is to end.
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
    std::uint64_t held_ns_ = 0;  // since
    State state_ = State::unreached;
  };

  // `begin` is called for what was held back. `warn_s`: after which a line in the log says so.
  StreamOrder(const CommState& state, int rank, double warn_s, void (*begin)(Entry& entry));

  // Calling thread. `grouped`: in one turn with the call before it.
  void take_turn(bool grouped) { turn_ += grouped ? 0 : 1; }
  // `stream`: tells streams apart. The entry stays where it is until it is removed.
  void add(Entry& entry, const void* stream);

  // Driver of the engine, from here on. Its stream has got there; whether it may begin now.
  bool reach(Entry& entry);
  // It has ended, or is forgotten.
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
  std::uint64_t turn_ = 0;  // of the calling thread
  std::mutex mutex_;        // guards the list
  Entry* first_ = nullptr;
  Entry* last_ = nullptr;
  std::vector<Entry*> held_;
  bool beginning_ = false;
  bool told_ = false;  // of the first one held
  std::uint32_t polls_ = 0;
};

}  // namespace pith
