// Communicators made from another one: split, and shrink to those that live.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/child_agreement.hpp"
#include "control/cancellation.hpp"
#include "settings/settings.hpp"

namespace pith {

class Communicator;

class ChildCommunicators {
 public:
  ChildCommunicators(Communicator& parent, const Settings& settings);

  // Collective. The ranks of one color, ordered by key and then by rank; null for no_color.
  static constexpr int no_color = Split::no_color;
  // `settings`: of the child; where they could not be read, the others are told.
  using Made = Expected<std::unique_ptr<Communicator>>;
  Made split(const Expected<Settings>& settings, int color, int key);
  // Collective over the ranks that live and are not excluded, also of a revoked communicator: they
  // agree who that is, and on the last call that all of them completed.
  Made shrink(const Expected<Settings>& settings, std::span<const int> excluded);
  // Set by shrink, on both communicators; 0: none.
  std::uint64_t last_completed_by_all() const { return completed_by_all_; }

  // Before an abort that frees the handle: what makes a child on any thread ends as well.
  void cancel() { cancellation_->cancel(); }
  // This one is only a step on the way to a child of the other: what ends the making of the
  // other's children ends that of ours.
  void is_cancelled_with(const ChildCommunicators& other) { cancellation_ = other.cancellation_; }

 private:
  Made make(const Expected<Settings>& settings, CommKey key, const std::vector<int>& members);
  Error leave(CommKey child, const Error& error);
  Error end(CommKey child, const Error& error);
  GatherResult ask(const Question& question);
  std::vector<int> cut_off(std::span<const int> excluded);

  Communicator& parent_;
  const double patience_s_;  // for links to be found dead
  std::shared_ptr<Cancellation> cancellation_;
  ChildRounds rounds_;
  std::uint64_t completed_by_all_ = 0;
};

}  // namespace pith
