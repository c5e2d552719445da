// Makes communicators from another one: split, shrink to the ranks that live, and growth by ranks
// that join.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/children/child_agreement.hpp"
#include "control/cancellation.hpp"
#include "settings/settings.hpp"
#include "startup/unique_id.hpp"

namespace pith {

class Communicator;

class ChildCommunicators {
 public:
  ChildCommunicators(Communicator& parent, const Settings& settings);

  // Collective. The child holds the ranks of one color, ordered by key and then by rank; null for
  // no_color.
  static constexpr int no_color = Split::no_color;
  // `settings`: for the child; an error in reading them is told to the other ranks.
  using Made = Expected<std::unique_ptr<Communicator>>;
  Made split(const Expected<Settings>& settings, int color, int key);
  // Collective over the ranks that live and are not excluded; the communicator may be revoked. They
  // agree on their set and on the last call that all of them completed.
  Made shrink(const Expected<Settings>& settings, std::span<const int> excluded);
  // Collective over this communicator, which stays as it is, and the ranks that join with the id:
  // this one's members keep their ranks, and `ranks` is the new number of all. `id`: null on all
  // members but that which made it, by Rendezvous::open. `timeout_s`: in place of this one's.
  Made grow(Expected<Settings> settings, int ranks, const UniqueId* id,
            std::optional<int> timeout_s);
  // Set by shrink on both communicators; 0: not set.
  std::uint64_t last_completed_by_all() const { return completed_by_all_; }

  // Called before an abort frees the handle. Ends the making of a child on any thread.
  void cancel() { cancellation_->cancel(); }
  // This communicator is an intermediate step to a child of `other`: cancelling the making of
  // children of `other` cancels it here too.
  void is_cancelled_with(const ChildCommunicators& other) { cancellation_ = other.cancellation_; }

 private:
  Made make(const Expected<Settings>& settings, CommKey key, const std::vector<int>& members);
  Error leave(CommKey child, const Error& error);
  Error end(CommKey child, const Error& error);
  GatherResult ask(const Question& question);
  std::vector<int> cut_off(std::span<const int> excluded);
  Error death() const;

  Communicator& parent_;
  const double patience_s_;  // how long a doubtful link may take to be found dead
  std::shared_ptr<Cancellation> cancellation_;
  ChildRounds rounds_;
  std::uint64_t completed_by_all_ = 0;
};

}  // namespace pith
