// The receiving half of a pair: makes messages of frames, holds those that the mailbox does not
// accept yet in their slots, and grants announced messages a place as soon as a receive wants them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/mailbox.hpp"
#include "transport/verbs/verbs_control.hpp"
#include "transport/verbs/verbs_lanes.hpp"
#include "transport/verbs/verbs_memory.hpp"
#include "transport/verbs/verbs_names.hpp"

namespace pith {

class VerbsInbox final : public SlotOwner, public MessageSource {
 public:
  VerbsInbox(Mailbox& mailbox, VerbsMemory& memory, VerbsControl& control, VerbsLanes& lanes,
             int peer)
      : mailbox_(mailbox), memory_(memory), control_(control), lanes_(lanes), peer_(peer) {}
  VerbsInbox(const VerbsInbox&) = delete;
  VerbsInbox& operator=(const VerbsInbox&) = delete;

  // At most this many frames come before earlier ones are taken.
  void expect(std::size_t frames) { held_.reserve(frames); }
  // Takes an ordered frame, at once or when its turn comes; null, or what is wrong with it.
  const char* arrive(std::uint32_t slot);
  // Of the frames that take effect at once.
  const char* portion(const VerbsHead& head, std::span<const std::byte> payload);
  void withdrawn(const VerbsHead& head, const Error& why);
  // The notice of one lane that its share of a message is there.
  void noticed(std::uint32_t arrival);

  // Takes held frames and grants places, as far as it can; true when anything moved.
  bool pump(const char*& fault);
  bool can_pump() const {
    return (!held_.empty() && mailbox_.accepts(peer_)) || can_grant() || !stopped_.empty();
  }
  bool left() const { return left_; }
  // Whether a message that comes now would be delivered at once.
  bool is_between_messages() const { return held_.empty() && !incoming_ && !left_; }

  // The data connections have stopped: granted messages are granted again, or refused. `wanted`:
  // the sender's names of these; returns how many.
  std::size_t halt(std::span<std::uint32_t> wanted);

  // The peer is gone: takes the frames that are here, however many the mailbox has of it.
  void take_rest();
  // Takes nothing more; receives that wait for a rest end with the error. The connections must have
  // been closed.
  void abandon(const Error& error);

  // Called when the device must not write to granted memory any more; stops the data connections.
  std::function<void()> on_stop;

  void release_slot(int peer, std::uint64_t slot) override;
  void fetch(Mailbox::Incoming& incoming) override;
  void drop(std::uint64_t message) override;
  bool writes_to_callers() const override { return true; }
  void stop(std::uint64_t message) override;

 private:
  // An announced message.
  struct Arrival {
    enum class State : std::uint8_t { announced, wanted, granted, portions };
    State state = State::announced;
    std::uint32_t name = 0;
    std::uint32_t sender = 0;  // the sender's name for it
    Mailbox::Incoming* incoming = nullptr;
    VerbsRegion* region = nullptr;
    bool direct = false;  // into a device's scratch; its region stays until the end
    std::size_t lanes_left = 0;
  };
  using State = Arrival::State;

  bool can_grant() const {
    return !wanted_.empty() && lanes_.is_open() && granted_ < verbs_grants_max;
  }
  bool take_held(const char*& fault);
  const char* take(std::uint32_t slot);
  const char* take_piece(const VerbsSlot& slot, const VerbsHead& head);
  void announce(const VerbsHead& head);
  void grant(Arrival& arrival);
  void give_back(Arrival& arrival);
  void finish(Arrival& arrival);
  void forget_stopped();
  Arrival& take_arrival();
  Arrival* named(std::uint32_t name, State state);
  void recycle(Arrival& arrival);

  Mailbox& mailbox_;
  VerbsMemory& memory_;
  VerbsControl& control_;
  VerbsLanes& lanes_;
  const int peer_;
  std::vector<std::uint32_t> held_;  // slots of ordered frames that wait, in order
  Mailbox::Incoming* incoming_ = nullptr;
  bool left_ = false;
  std::vector<std::unique_ptr<Arrival>> all_;  // by name
  std::vector<Arrival*> spare_;
  std::vector<Arrival*> active_;
  std::vector<Arrival*> wanted_;   // to be granted, in order
  std::vector<Arrival*> stopped_;  // whose memory was taken back, and the mailbox waits for the end
  std::size_t granted_ = 0;
};

}  // namespace pith
