// The sending half of a pair. Short messages are copied into frames; long ones are announced, and
// written from where they lie to the place that the receiver grants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/scheduler.hpp"
#include "transport/verbs/verbs_control.hpp"
#include "transport/verbs/verbs_lanes.hpp"
#include "transport/verbs/verbs_memory.hpp"
#include "transport/verbs/verbs_names.hpp"

namespace pith {

// Shared by all pairs of a rank.
struct VerbsShared {
  Scheduler* scheduler = nullptr;
  VerbsMemory* memory = nullptr;
  std::size_t write_bytes = 0;  // messages of this size and more are announced
};

// A message that is not finished.
struct VerbsOutgoing {
  enum class State : std::uint8_t {
    queued,     // its frames are sent in turn, or it is to be announced
    announced,  // waits for a grant
    writing,
    portions,   // granted a place that is not registered: it is queued again
    withdrawn,  // its send has ended, and the peer does not know yet
  };
  State state = State::queued;
  std::uint32_t name = 0;
  Send* send = nullptr;  // null: it has ended
  Header header;
  const std::byte* data = nullptr;
  std::size_t posted = 0;  // bytes in frames
  bool begun = false;
  std::unique_ptr<std::byte[]> copy;  // of an aborted message that had begun
  VerbsRegion* region = nullptr;
  std::uint32_t answer = 0;  // the receiver's name for it
  std::uint64_t place = 0;
  VerbsKeys keys;
  // By share: what is to be written, and how far it is.
  struct Share {
    std::size_t at = 0;
    std::size_t end = 0;
    bool told = false;
  };
  std::array<Share, verbs_rails_max> shares;
  std::size_t shares_count = 0;
  std::size_t shares_left = 0;  // not acknowledged
};

class VerbsOutbox {
 public:
  VerbsOutbox(const VerbsShared& shared, VerbsControl& control, VerbsLanes& lanes)
      : shared_(shared), control_(control), lanes_(lanes) {}

  // True: complete at once.
  bool start(Send& send);
  // Sends and writes what there is room for; true when anything moved.
  bool pump();
  bool can_pump() const;

  // Frames of the peer about messages of this outbox.
  void granted(const VerbsHead& head, const VerbsKeys& keys);
  void dropped(const VerbsHead& head);
  // A message has been written over one of its lanes.
  void departed(std::uint32_t name);

  // The data connections have stopped: what was being written is to be granted again...
  void halt();
  // ...as far as the peer still wants it.
  void landed_except(std::span<const std::uint32_t> wanted);

  // Whether a message of the communicator is being written. Then the data connections must stop
  // before quiesce().
  bool writes_for(const CommState& comm) const;
  // Ends sends of the communicator; begun messages are completed from a copy. False: there is no
  // memory for that, and the pair cannot go on.
  bool quiesce(const CommState& comm, const Error& error);
  // Ends everything. The data connections must have been closed.
  void fail(const Error& error);

  void for_each_sending(const std::function<void(const Send&)>& see) const;
  // Nothing is left to be sent.
  bool empty() const;
  // Whether a send waits.
  bool awaited() const;
  // What a device refused; 0: nothing.
  int broken() const { return broken_; }

 private:
  using State = VerbsOutgoing::State;
  VerbsOutgoing& take_outgoing(Send& send);
  VerbsOutgoing* named(std::uint32_t name, State state);
  bool pump_frames();
  bool pump_writes();
  bool announce(VerbsOutgoing& outgoing);
  void send_frame(VerbsOutgoing& outgoing);
  void share_out(VerbsOutgoing& outgoing);
  bool write_share(VerbsOutgoing& outgoing, std::size_t share);
  bool writes_left(const VerbsOutgoing& outgoing) const;
  void finish(VerbsOutgoing& outgoing);
  void end(VerbsOutgoing& outgoing, const Error& error);
  void release(VerbsOutgoing& outgoing);
  void recycle(VerbsOutgoing& outgoing);
  bool copy_rest(VerbsOutgoing& outgoing);

  const VerbsShared& shared_;
  VerbsControl& control_;
  VerbsLanes& lanes_;
  std::vector<std::unique_ptr<VerbsOutgoing>> all_;  // by name
  std::vector<VerbsOutgoing*> spare_;
  std::vector<VerbsOutgoing*> active_;  // all that are not spare
  std::vector<VerbsOutgoing*> queue_;   // whose frames are sent, in order; the first may have begun
  std::vector<VerbsOutgoing*> writing_;  // with writes to be posted, in order
  std::vector<VerbsOutgoing*> halted_;   // were being written when the data connections stopped
  VerbsOutgoing* starting_ = nullptr;
  bool started_done_ = false;
  int broken_ = 0;
};

}  // namespace pith
