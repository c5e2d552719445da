// Which ranks live, as far as this rank knows. Knowledge only grows, so all ranks agree once they
// have heard the same.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/packing.hpp"

namespace pith {

class Membership {
 public:
  Membership(int own, int ranks) : own_(own), ranks_(ranks) {}

  // A rank that leaves in order may look dead to ranks that have not heard of it yet.
  bool is_dead(int rank) const { return dead_.contains(rank) && !left_.contains(rank); }
  // Is dead or has left.
  bool is_gone(int rank) const { return dead_.contains(rank) || left_.contains(rank); }
  bool lives(int rank) const { return !is_gone(rank) && !unreached_.contains(rank); }
  // Unreachable, and not known to be dead or to have left.
  bool is_unsure(int rank) const { return !is_gone(rank) && unreached_.contains(rank); }
  bool exists(int rank) const { return rank >= 0 && rank < ranks_; }
  // Living ranks up to `last`, and this one in any case.
  std::vector<int> living(int last) const;
  std::vector<int> living() const { return living(ranks_ - 1); }
  // Changes with every death and departure.
  std::size_t gone() const { return dead_.size() + left_.size(); }
  bool any_died() const;
  // The dead, and ranks that left because their process ended.
  std::vector<int> gone_for_good() const;
  // Why a rank is dead or has ended; empty: it is neither, as far as is known.
  std::string cause_of(int rank) const;
  // All reported deaths with their cause, also of ranks that have left since.
  const std::map<int, std::string>& said_to_be_dead() const { return dead_; }

  // Returns whether it is news.
  bool add_dead(int rank, std::string_view how);
  enum class News { nothing, ended, left };
  News add_left(int rank, bool ended);
  // No connection could be made: the rank is dead, unless news of it arrives soon.
  void add_unreached(int rank, std::string_view how, std::uint64_t now_ns);
  // Unreachable ranks of which no news has arrived in time.
  std::vector<std::pair<int, std::string>> overdue(std::uint64_t now_ns) const;

  void pack(Packer& packer) const;

 private:
  struct Unreached {
    std::string how;
    std::uint64_t since_ns = 0;
  };

  const int own_;
  const int ranks_;
  std::map<int, std::string> dead_;  // rank of the job: why
  std::set<int> left_;
  std::set<int> ended_;  // of left_, those whose process has ended
  std::map<int, Unreached> unreached_;
};

}  // namespace pith
